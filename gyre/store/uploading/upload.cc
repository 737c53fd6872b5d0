#include "gyre/store/uploading/upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>

#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/sources/md5.h"
#include "gyre/store/sources/object_putter.h"
#include "gyre/store/staging/crew.h"
#include "gyre/store/staging/fetch.h"
#include "gyre/store/uploading/blocks.h"

namespace gyre::store {

namespace {

constexpr std::chrono::milliseconds kTick{100};

/// What the target says of one object, and not of all: what it refuses, it refuses for all.
bool concerns_object(ErrorCode code) { return code == ErrorCode::kNotFound || code == ErrorCode::kCorruptData; }

/// What concerns one file here, and not the others.
bool concerns_file(ErrorCode code) { return concerns_object(code) || code == ErrorCode::kInvalidArgument; }

Md5 md5_of(std::span<const std::byte> bytes) {
  Md5Sum sum;
  sum.add(bytes);
  return sum.result();
}

/// An object of several blocks, while it is put.
struct LargeObject {
  std::size_t entry = 0;
  NewObject object{};
  std::string id{};
  std::vector<std::string> tags{};
  Md5 md5{};
  std::uint64_t stored_bytes = 0;
  std::size_t open_blocks = 1;  ///< Not yet there, and one for those that are still to come.
  bool failed = false;
};

struct Block {
  std::shared_ptr<LargeObject> of;
  std::uint32_t number = 0;
  Bytes bytes{};
  Md5 md5{};
};

class Upload {
 public:
  Upload(const std::vector<UploadEntry>& entries, const Source& target, const UploadOptions& options)
      : entries_(entries),
        target_(target),
        options_(options),
        limit_(options.connections),
        rate_(options.bytes_per_second) {}

  UploadReceipt run();

 private:
  /// What one thread has.
  struct Tools {
    std::stop_token stop;
    std::unique_ptr<ObjectPutter> putter;
    std::map<const Source*, std::unique_ptr<ObjectReader>> readers{};
  };

  /// Error(kInvalidArgument) that names those files which the target would keep under other names.
  void check_names(const ObjectPutter& putter) const;
  void work(const std::stop_token& stop);
  /// Sends one of the blocks that wait; false where there is none.
  bool send_block(Tools& tools) GYRE_EXCLUDES(mutex_);
  /// Reads the next object, and puts it, or its blocks to those that wait; false where there is none.
  bool take_object(Tools& tools) GYRE_EXCLUDES(mutex_);
  void put_object(std::size_t entry, Tools& tools) GYRE_EXCLUDES(mutex_);
  void put_large(std::size_t entry, const NewObject& object, Bytes first, Blocks& blocks, Tools& tools)
      GYRE_EXCLUDES(mutex_);
  void queue(Block block, Tools& tools) GYRE_EXCLUDES(mutex_);
  void send(const Block& block, Tools& tools) GYRE_EXCLUDES(mutex_);
  /// It is not committed. Those of its blocks that are under way still have to be settled.
  void give_up(LargeObject& large, const std::string& reason) GYRE_EXCLUDES(mutex_);
  /// One block of `object` is there, or none comes any more: commits it where it was the last.
  void settle(const std::shared_ptr<LargeObject>& large, Tools& tools) GYRE_EXCLUDES(mutex_);
  Blocks blocks_of(std::size_t entry, Tools& tools);
  /// Not what is compressed already: it would come back decompressed once, without its suffix.
  bool compresses(const UploadEntry& entry) const {
    return options_.compress && entry.object.encoding.empty() && !has_compression_suffix(entry.name);
  }
  /// Whether the target has these bytes already, or others that must stay.
  bool is_there(std::size_t entry, const NewObject& object, Tools& tools) GYRE_EXCLUDES(mutex_);

  void sent(std::size_t entry, std::uint64_t stored_bytes) GYRE_EXCLUDES(mutex_);
  void failed(std::size_t entry, const std::string& reason) GYRE_EXCLUDES(mutex_);
  UploadProgress progress() GYRE_EXCLUDES(mutex_);
  UploadReceipt receipt(SteadyClock::duration took) GYRE_EXCLUDES(mutex_);

  const std::vector<UploadEntry>& entries_;
  const Source& target_;
  const UploadOptions& options_;
  std::map<std::string, Object> there_;  ///< By name; not changed once listed.
  TransferLimit limit_;
  RateLimit rate_;
  std::atomic<std::uint64_t> fetched_bytes_{0};
  std::atomic<std::uint64_t> setbacks_{0};
  std::atomic<std::uint64_t> sent_bytes_{0};
  std::atomic<std::uint64_t> reused_bytes_{0};

  Mutex mutex_;
  ConditionVariable changed_;
  std::size_t next_ GYRE_GUARDED_BY(mutex_) = 0;
  std::size_t settled_ GYRE_GUARDED_BY(mutex_) = 0;
  std::deque<Block> blocks_ GYRE_GUARDED_BY(mutex_);
  std::uint64_t block_bytes_ GYRE_GUARDED_BY(mutex_) = 0;
  UploadReceipt proof_ GYRE_GUARDED_BY(mutex_);
};

Blocks Upload::blocks_of(std::size_t number, Tools& tools) {
  const UploadEntry& entry = entries_[number];
  auto& reader = tools.readers[entry.source];
  if (!reader) reader = entry.source->reader({.stop = tools.stop});
  const auto read = [this, &entry, &reader, stop = tools.stop](std::uint64_t offset_bytes, std::span<std::byte> into) {
    const FetchShared shared{
        .limit = limit_, .read_bytes = fetched_bytes_, .setbacks = setbacks_, .patience = options_.patience};
    fetch(shared, entry.source->name(), *reader, entry.object, offset_bytes, into, stop, [] { return true; });
  };
  return {entry.object.size_bytes, compresses(entry), read};
}

bool Upload::is_there(std::size_t number, const NewObject& object, Tools& tools) {
  const auto found = there_.find(object.name);
  if (found == there_.end()) return false;
  const bool compressed = compresses(entries_[number]);
  bool alike = false;
  Contents contents;
  if (compressed || found->second.size_bytes == entries_[number].object.size_bytes) {
    Blocks blocks = blocks_of(number, tools);
    Md5Sum whole;
    while (const auto block = blocks.next()) {
      contents.size_bytes += block->size();
      contents.blocks.push_back(md5_of(*block));
      whole.add(*block);
    }
    contents.md5 = whole.result();
    alike = contents.size_bytes == found->second.size_bytes && tools.putter->holds(found->second, object, contents);
  }
  if (!alike && options_.overwrite) return false;
  const MutexLock lock(mutex_);
  ++(alike ? proof_.files_present : proof_.files_kept);
  if (alike) proof_.stored_bytes += contents.size_bytes;
  ++settled_;
  changed_.notify_all();
  return true;
}

void Upload::sent(std::size_t entry, std::uint64_t stored_bytes) {
  const MutexLock lock(mutex_);
  ++proof_.files_sent;
  proof_.stored_bytes += stored_bytes;
  proof_.read_bytes += entries_[entry].object.size_bytes;
  ++settled_;
  changed_.notify_all();
}

void Upload::failed(std::size_t entry, const std::string& reason) {
  const MutexLock lock(mutex_);
  proof_.failed.emplace_back(entries_[entry].name, reason);
  ++settled_;
  changed_.notify_all();
}

void Upload::put_object(std::size_t number, Tools& tools) {
  const UploadEntry& entry = entries_[number];
  const bool compressed = compresses(entry);
  const std::string& given = options_.encoding.empty() ? entry.object.encoding : options_.encoding;
  const NewObject object{.name = entry.name, .encoding = compressed ? "gzip" : given};
  if (is_there(number, object, tools)) return;
  Blocks blocks = blocks_of(number, tools);
  Bytes first = *blocks.next();
  if (first.size() == Blocks::block_bytes(entry.object.size_bytes)) {
    put_large(number, object, std::move(first), blocks, tools);
    return;
  }
  rate_.pass(first.size(), tools.stop);
  tools.putter->put(object, first, md5_of(first));
  sent_bytes_ += first.size();
  sent(number, first.size());
}

void Upload::put_large(std::size_t entry, const NewObject& object, Bytes first, Blocks& blocks, Tools& tools) {
  const Md5 first_md5 = md5_of(first);
  const auto begun = tools.putter->begin(object, tools.putter->tag_of(0, first_md5));
  const auto large = std::make_shared<LargeObject>(LargeObject{.entry = entry, .object = object, .id = begun.id});
  const auto next = [&]() -> std::optional<Bytes> {
    try {
      return blocks.next();
    } catch (const Error& error) {
      if (!concerns_file(error.code())) throw;
      give_up(*large, error.what());
      return std::nullopt;
    }
  };
  Md5Sum whole;
  std::uint32_t number = 0;
  for (std::optional<Bytes> block = std::move(first); block; block = next(), ++number) {
    whole.add(*block);
    const Md5 md5 = number == 0 ? first_md5 : md5_of(*block);
    const std::string tag = tools.putter->tag_of(number, md5);
    const auto left = begun.blocks.find(number);
    const bool is_left = left != begun.blocks.end() && left->second == tag;
    {
      const MutexLock lock(mutex_);
      if (large->failed) break;
      large->tags.push_back(tag);
      large->stored_bytes += block->size();
      if (!is_left) ++large->open_blocks;
    }
    if (is_left) {
      reused_bytes_ += block->size();
    } else if (number == 0) {  // Before the others: by this block a later upload knows what was begun.
      send({.of = large, .number = number, .bytes = std::move(*block), .md5 = md5}, tools);
    } else {
      queue({.of = large, .number = number, .bytes = std::move(*block), .md5 = md5}, tools);
    }
  }
  {
    const MutexLock lock(mutex_);
    large->md5 = whole.result();
  }
  settle(large, tools);
}

void Upload::queue(Block block, Tools& tools) {
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (blocks_.empty() || block_bytes_ + block.bytes.size() <= options_.memory_bytes / 2) {
        block_bytes_ += block.bytes.size();
        blocks_.push_back(std::move(block));
        changed_.notify_all();
        return;
      }
    }
    send_block(tools);  // All threads may be here.
  }
}

void Upload::give_up(LargeObject& large, const std::string& reason) {
  const MutexLock lock(mutex_);
  if (std::exchange(large.failed, true)) return;
  proof_.failed.emplace_back(entries_[large.entry].name, reason);
}

bool Upload::send_block(Tools& tools) {
  std::optional<Block> block;
  {
    const MutexLock lock(mutex_);
    if (blocks_.empty()) return false;
    block = std::move(blocks_.front());
    blocks_.pop_front();
    block_bytes_ -= block->bytes.size();
  }
  send(*block, tools);
  return true;
}

void Upload::send(const Block& block, Tools& tools) {
  rate_.pass(block.bytes.size(), tools.stop);
  try {
    tools.putter->put_block(block.of->object, block.of->id, block.number, block.bytes, block.md5);
    sent_bytes_ += block.bytes.size();
  } catch (const Error& error) {
    if (!concerns_object(error.code())) throw;
    give_up(*block.of, error.what());
  }
  settle(block.of, tools);
}

void Upload::settle(const std::shared_ptr<LargeObject>& large, Tools& tools) {
  {
    const MutexLock lock(mutex_);
    if (--large->open_blocks > 0) return;
    if (large->failed) {
      ++settled_;
      changed_.notify_all();
      return;
    }
  }
  try {
    tools.putter->commit(large->object, large->id, large->tags, large->md5);
  } catch (const Error& error) {
    if (!concerns_object(error.code())) throw;
    return failed(large->entry, error.what());
  }
  sent(large->entry, large->stored_bytes);
}

bool Upload::take_object(Tools& tools) {
  std::size_t number = 0;
  {
    const MutexLock lock(mutex_);
    if (next_ == entries_.size()) return false;
    number = next_++;
  }
  try {
    put_object(number, tools);
  } catch (const Error& error) {
    if (!concerns_object(error.code())) throw;
    failed(number, error.what());
  }
  return true;
}

void Upload::work(const std::stop_token& stop) {
  Tools tools{.stop = stop, .putter = target_.putter({.stop = stop}, options_.patience)};
  const std::stop_callback wake(stop, [this] {
    const MutexLock lock(mutex_);
    changed_.notify_all();
  });
  while (!stop.stop_requested()) {
    if (send_block(tools) || take_object(tools)) continue;
    const MutexLock lock(mutex_);
    while (blocks_.empty() && settled_ < entries_.size() && !stop.stop_requested()) changed_.wait(mutex_);
    if (blocks_.empty()) return;
  }
}

UploadProgress Upload::progress() {
  const std::uint64_t read = fetched_bytes_;
  std::uint64_t total = 0;
  for (const UploadEntry& entry : entries_) total += entry.object.size_bytes;
  const MutexLock lock(mutex_);
  return {.done_bytes = std::min(total, read),
          .total_bytes = total,
          .done_files = settled_,
          .total_files = entries_.size(),
          .sent_bytes = sent_bytes_};
}

UploadReceipt Upload::receipt(SteadyClock::duration took) {
  const MutexLock lock(mutex_);
  UploadReceipt receipt = proof_;
  for (const UploadEntry& entry : entries_) {
    if (std::ranges::find(receipt.sources, entry.source->name()) == receipt.sources.end())
      receipt.sources.push_back(entry.source->name());
  }
  receipt.target = target_.name();
  receipt.files = entries_.size();
  receipt.sent_bytes = sent_bytes_;
  receipt.reused_bytes = reused_bytes_;
  receipt.seconds = std::chrono::duration<double>(took).count();
  std::ranges::sort(receipt.failed);
  GYRE_CHECK(receipt.files_sent + receipt.files_present + receipt.files_kept + receipt.failed.size() == receipt.files);
  return receipt;
}

void Upload::check_names(const ObjectPutter& putter) const {
  constexpr std::size_t kMostShown = 5;
  std::string names;
  std::string_view why;
  std::size_t count = 0;
  for (const UploadEntry& entry : entries_) {
    const std::string_view trouble = putter.trouble_with({.name = entry.name});
    if (trouble.empty()) continue;
    why = trouble;
    if (++count <= kMostShown) names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  }
  if (count == 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} file{} would get another name in {}, and could replace each other: {}{} ({}). Nothing "
                          "was sent; rename them, or leave them out by --exclude-pattern",
                          count, count == 1 ? "" : "s", target_.name(), names, count > kMostShown ? ", …" : "", why));
}

UploadReceipt Upload::run() {
  const auto began = SteadyClock::now();
  const auto putter = target_.putter({.notice = options_.notice}, options_.patience);
  check_names(*putter);
  auto there = putter->list();
  if (!there && !options_.overwrite) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("cannot find out what is in {}, which must not be overwritten: its SAS does not allow "
                            "listing (l)",
                            target_.name()));
  }
  if (there) there_ = std::move(*there);
  std::exception_ptr failure;
  bool stopped = false;
  {
    Crew crew;
    const auto threads = std::min<std::size_t>(static_cast<std::size_t>(options_.connections), entries_.size() + 4);
    for (std::size_t i = 0; i < threads; ++i) crew.start("uploading", [this, stop = crew.stop()] { work(stop); });
    while (!crew.wait(kTick)) {
      if (!options_.tick || options_.tick(progress())) continue;
      stopped = true;
      crew.request_stop();
    }
    failure = crew.failure();
  }
  if (stopped)
    throw Error(ErrorCode::kAborted, "stopped; what was sent stays there, and the same command goes on from there");
  if (failure) std::rethrow_exception(failure);
  return receipt(SteadyClock::now() - began);
}

}  // namespace

UploadReceipt upload(const std::vector<UploadEntry>& entries, const Source& target, const UploadOptions& options) {
  return Upload(entries, target, options).run();
}

}  // namespace gyre::store
