#include "gyre/data/loader.h"

#include <utility>

#include "gyre/data/internal/loader_pool.h"

namespace gyre::data {

Batch::Batch(std::shared_ptr<internal::LoaderPool> pool, internal::BatchSlot* slot)
    : pool_(std::move(pool)), slot_(slot) {}

Batch::~Batch() {
  if (slot_ != nullptr) pool_->give_back(slot_);
}

Batch::Batch(Batch&& other) noexcept : pool_(std::move(other.pool_)), slot_(std::exchange(other.slot_, nullptr)) {}

std::span<std::byte> Batch::field(std::size_t index) const {
  return {slot_->fields.at(index).get(), pool_->field_bytes(index)};
}

std::uint64_t Batch::step() const { return slot_->step; }

const RankBatch& Batch::samples() const { return slot_->batch; }

const BatchWait& Batch::wait() const { return slot_->wait; }

Loader::Loader(std::shared_ptr<const SampleSet> set, std::vector<Field> fields, const LoaderOptions& options)
    : pool_(std::make_shared<internal::LoaderPool>(std::move(set), std::move(fields), options)) {
  pool_->start_threads();
}

Loader::~Loader() { pool_->stop(); }

void Loader::share_among(int rank, int ranks) { pool_->share_among(rank, ranks); }

std::uint64_t Loader::steps() const { return pool_->steps(); }

const SamplerOptions& Loader::sampling() const { return pool_->sampling(); }
std::span<const Field> Loader::fields() const { return pool_->decoder().fields(); }

void Loader::start_epoch(std::uint64_t epoch, std::uint64_t first_step) { pool_->start_epoch(epoch, first_step); }

std::uint64_t Loader::start_epoch_at(std::uint64_t epoch, std::uint64_t first_position) {
  return pool_->start_epoch_at(epoch, first_position);
}

std::optional<Batch> Loader::next(const std::function<void()>& meanwhile) {
  internal::BatchSlot* const slot = pool_->next(meanwhile);
  if (slot == nullptr) return std::nullopt;
  return Batch(pool_, slot);
}

StallLedger Loader::ledger() const { return pool_->ledger(); }

std::uint64_t Loader::memory_bytes() const { return pool_->memory_bytes(); }

}  // namespace gyre::data
