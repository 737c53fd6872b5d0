#include "gyre/store/staging/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <optional>
#include <stop_token>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/staging/crew.h"
#include "gyre/store/staging/fetch.h"
#include "gyre/store/staging/object_writer.h"
#include "gyre/store/staging/pace.h"
#include "gyre/store/staging/stage_folder.h"
#include "gyre/store/staging/stage_log.h"
#include "gyre/store/staging/staging_state.h"
#include "gyre/store/staging/transfer_limit.h"

namespace gyre::store {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kTick{100};
/// No worker decompresses more than this in memory: the way through the disk is then as fast.
constexpr std::uint64_t kMostInMemory = std::uint64_t{256} << 20;
constexpr std::chrono::seconds kBetweenSyncs{10};

/// What concerns one object, and not the source or the disk as a whole.
bool concerns_object(ErrorCode code) {
  return code == ErrorCode::kNotFound || code == ErrorCode::kCorruptData || code == ErrorCode::kInvalidArgument ||
         code == ErrorCode::kProtocol || code == ErrorCode::kUnsupported || code == ErrorCode::kIo;
}

class Staging {
 public:
  Staging(const Manifest& manifest, const std::vector<std::unique_ptr<Source>>& sources, const StageOptions& options)
      : manifest_(manifest),
        sources_(sources),
        options_(options),
        folder_(options.folder),
        log_(folder_.own()),
        set_(set_of(manifest, options.selection)),
        state_(manifest.entries.size(), options.memory_bytes),
        limit_(options.connections),
        rate_(options.bytes_per_second) {}

  Receipt run();

 private:
  /// Decides of every entry what is still to be read.
  void plan();
  void plan_entry(std::size_t number, std::uint64_t& missing_bytes);
  static bool is_sound(const fs::path& part, std::uint64_t offset_bytes, std::uint64_t size_bytes,
                       const StageLog::Part& known);
  std::vector<Piece> missing_pieces(std::size_t number, const std::optional<StageLog::Record>& record);
  void check_space(std::uint64_t missing_bytes) const;

  void read_pieces(const std::stop_token& stop);
  /// What one thread reads with.
  struct Tools {
    std::vector<std::unique_ptr<ObjectReader>> readers;
    ObjectWriter writer;
    Pace pace;
  };
  /// A piece without what an earlier staging has kept; nothing where the object has failed. What arrives is kept as it
  /// comes, but for the last part.
  std::optional<Bytes> read(Piece& piece, Tools& tools, const std::stop_token& stop);

  ObjectWriter writer();
  void work(const std::stop_token& stop);
  void handle(const Arrived& arrived, ObjectWriter& writer);
  /// Runs `write` for an object; where it turns out damaged, it is read again, once.
  void attempt(std::size_t number, const std::function<void()>& write);

  void sync();
  void watch(Crew& crew);
  StageProgress progress() const;
  Receipt receipt(SteadyClock::duration took) const;

  const Manifest& manifest_;
  const std::vector<std::unique_ptr<Source>>& sources_;
  const StageOptions& options_;
  StageFolder folder_;
  StageLog log_;
  const std::uint64_t set_;
  StagingState state_;
  TransferLimit limit_;
  RateLimit rate_;
  WrittenCounts counts_;
  std::atomic<std::uint64_t> read_bytes_{0};
  std::atomic<std::uint64_t> setbacks_{0};
  // Set by plan().
  std::uint64_t present_files_ = 0;
  std::uint64_t present_bytes_ = 0;  ///< Of their objects, as they are stored.
  std::uint64_t present_written_bytes_ = 0;
  std::uint64_t kept_files_ = 0;
  std::uint64_t reused_bytes_ = 0;
  Receipt::Older older_;
  bool stopped_ = false;
};

bool Staging::is_sound(const fs::path& part, std::uint64_t offset_bytes, std::uint64_t size_bytes,
                       const StageLog::Part& known) {
  return known.trusted || crc32c_of_file(part, offset_bytes, size_bytes) == known.crc32c;
}

std::vector<Piece> Staging::missing_pieces(std::size_t number, const std::optional<StageLog::Record>& record) {
  const ManifestEntry& entry = manifest_.entries[number];
  std::vector<Piece> pieces = pieces_of(number, entry.object.size_bytes);
  if (!record || (record->parts.empty() && record->beginnings.empty())) return pieces;
  const std::uint64_t key = StageLog::key_of(manifest_, entry);
  const fs::path part = folder_.stored_part(key);
  std::error_code failure;
  const std::uintmax_t part_bytes = fs::file_size(part, failure);
  if (failure) return pieces;
  std::erase_if(pieces, [&](const Piece& piece) {
    const auto found = record->parts.find(piece.number);
    if (found == record->parts.end() || piece.offset_bytes + piece.size_bytes > part_bytes) return false;
    if (!is_sound(part, piece.offset_bytes, piece.size_bytes, found->second)) return false;
    if (!found->second.trusted) log_.add_part(key, piece.number, found->second.crc32c);
    reused_bytes_ += piece.size_bytes;
    return true;
  });
  for (Piece& piece : pieces) {
    const auto found = record->beginnings.find(piece.number);
    if (found == record->beginnings.end()) continue;
    const StageLog::Part& known = found->second;
    if (known.bytes >= piece.size_bytes || piece.offset_bytes + known.bytes > part_bytes) continue;
    if (!is_sound(part, piece.offset_bytes, known.bytes, known)) continue;
    if (!known.trusted) log_.add_beginning(key, piece.number, known.bytes, known.crc32c);
    piece.kept_bytes = known.bytes;
    piece.kept_crc32c = known.crc32c;
    reused_bytes_ += known.bytes;
  }
  return pieces;
}

void Staging::plan_entry(std::size_t number, std::uint64_t& missing_bytes) {
  const ManifestEntry& entry = manifest_.entries[number];
  const auto record = log_.find(manifest_, entry);
  const bool is_older = record && record->done && record->done->older;
  if (is_older) ++older_.of_this_set;
  if (record && record->done && folder_.holds(*record->done, entry.target)) {
    if (is_older) ++older_.sound;
    ++present_files_;
    present_bytes_ += entry.object.size_bytes;
    present_written_bytes_ += record->done->bytes;
    const auto known = log_.brought().find(entry.target);
    if (!record->done->trusted || known == log_.brought().end() || known->second.set != set_)
      log_.add_done(StageLog::key_of(manifest_, entry), *record->done, entry.target);
    return;
  }
  std::error_code failure;
  const fs::file_status status = fs::symlink_status(folder_.target(entry.target), failure);
  if (fs::is_directory(status)) {
    state_.failed(number, fmt::format("cannot write {}: it is a folder", folder_.target(entry.target).string()));
    return;
  }
  if (!options_.overwrite && fs::exists(status)) {
    ++kept_files_;
    present_bytes_ += entry.object.size_bytes;
    return;
  }
  std::vector<Piece> missing = missing_pieces(number, record);
  if (missing.empty()) {
    attempt(number, [&] { writer().assemble(entry); });
    return;
  }
  for (const Piece& piece : missing) missing_bytes += piece.size_bytes - piece.kept_bytes;
  state_.add(number, std::move(missing));
}

void Staging::check_space(std::uint64_t missing_bytes) const {
  const std::uint64_t free_bytes = folder_.free_bytes();
  if (missing_bytes <= free_bytes) return;
  throw Error(ErrorCode::kResourceExhausted,
              fmt::format("{} more must be written to {}, and {} are free there", format_bytes(missing_bytes),
                          folder_.path().string(), format_bytes(free_bytes)));
}

void Staging::plan() {
  std::uint64_t missing_bytes = 0;
  older_.files = log_.older_files();
  for (std::size_t i = 0; i < manifest_.entries.size(); ++i) plan_entry(i, missing_bytes);
  check_space(missing_bytes);
  state_.seal();
}

std::optional<Bytes> Staging::read(Piece& piece, Tools& tools, const std::stop_token& stop) {
  const ManifestEntry& entry = manifest_.entries[piece.entry];
  const FetchShared shared{.limit = limit_,
                           .read_bytes = read_bytes_,
                           .setbacks = setbacks_,
                           .patience = options_.patience,
                           .notice = options_.notice};
  const auto wanted = [&] { return !state_.has_failed(piece.entry); };
  Bytes bytes(static_cast<std::size_t>(piece.size_bytes - piece.kept_bytes));
  for (;;) {
    const auto left = std::span(bytes).last(static_cast<std::size_t>(piece.size_bytes - piece.kept_bytes));
    const auto part = left.first(std::min<std::uint64_t>(left.size(), tools.pace.next_bytes()));
    const auto began = SteadyClock::now();
    try {
      if (!fetch(shared, manifest_.sources[entry.source], *tools.readers[entry.source], entry.object,
                 piece.offset_bytes + piece.kept_bytes, part, stop, wanted)) {
        return std::nullopt;
      }
    } catch (const Error& error) {
      // A source that is silent is no fault of one object.
      if (!concerns_object(error.code())) throw;
      state_.failed(piece.entry, error.what());
      return std::nullopt;
    }
    tools.pace.arrived(part.size(), SteadyClock::now() - began);
    if (part.size() == left.size()) return bytes;
    tools.writer.keep_beginning(entry, piece, part);
  }
}

void Staging::read_pieces(const std::stop_token& stop) {
  const ReadLimits limits{.stop = stop, .rate = &rate_, .notice = options_.notice};
  Tools tools{.readers = std::vector<std::unique_ptr<ObjectReader>>(sources_.size()), .writer = writer(), .pace = {}};
  while (auto piece = state_.next_piece(stop)) {
    const std::size_t source = manifest_.entries[piece->entry].source;
    if (!tools.readers[source]) tools.readers[source] = sources_[source]->reader(limits);
    auto bytes = read(*piece, tools, stop);
    if (bytes) {
      state_.arrived({.piece = *piece, .bytes = std::move(*bytes)});
    } else {
      state_.dropped(*piece);
    }
  }
}

void Staging::attempt(std::size_t number, const std::function<void()>& write) {
  try {
    write();
    state_.complete(number);
  } catch (const NotCompressed& error) {
    state_.failed(number, error.what());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptData) throw;
    if (!state_.again(number, manifest_.entries[number].object.size_bytes)) state_.failed(number, error.what());
  }
}

void Staging::handle(const Arrived& arrived, ObjectWriter& writer) {
  const std::size_t number = arrived.piece.entry;
  const ManifestEntry& entry = manifest_.entries[number];
  if (state_.has_failed(number)) return;
  if (arrived.bytes.size() == entry.object.size_bytes) {
    attempt(number, [&] { writer.write_whole(entry, arrived.piece, arrived.bytes); });
    return;
  }
  writer.keep_piece(entry, arrived.piece, arrived.rest());
  if (state_.finished(arrived.piece)) attempt(number, [&] { writer.assemble(entry); });
}

ObjectWriter Staging::writer() {
  const std::uint64_t share = options_.memory_bytes / static_cast<std::uint64_t>(options_.workers);
  return {manifest_, folder_, log_, counts_, std::min(kMostInMemory, share)};
}

void Staging::work(const std::stop_token& stop) {
  ObjectWriter writer = this->writer();
  while (const auto arrived = state_.next_arrived(stop)) {
    handle(*arrived, writer);
    state_.dropped(arrived->piece);
  }
}

StageProgress Staging::progress() const {
  const std::uint64_t read = std::max<std::uint64_t>(read_bytes_, rate_.passed_bytes());  // Also of what is under way.
  const std::uint64_t total = manifest_.stored_bytes();
  return {.done_bytes = std::min(total, present_bytes_ + reused_bytes_ + read),
          .total_bytes = total,
          .done_files = present_files_ + kept_files_ + state_.completed(),
          .total_files = manifest_.entries.size(),
          .read_bytes = read,
          .setbacks = setbacks_,
          .connections = limit_.limit()};
}

void Staging::sync() {
  log_.begin_sync();
  folder_.sync();
  log_.end_sync();
}

void Staging::watch(Crew& crew) {
  auto synced = SteadyClock::now();
  while (!crew.wait(kTick)) {
    if (options_.tick && !options_.tick(progress())) {
      stopped_ = true;
      crew.request_stop();
    }
    if (SteadyClock::now() - synced < kBetweenSyncs || crew.stop().stop_requested()) continue;
    sync();
    synced = SteadyClock::now();
  }
}

Receipt Staging::receipt(SteadyClock::duration took) const {
  Receipt receipt{.sources = manifest_.sources,
                  .folder = folder_.path().string(),
                  .manifest = manifest_.digest(),
                  .part = manifest_.part};
  receipt.files = manifest_.entries.size();
  receipt.files_fetched = state_.completed();
  receipt.files_present = present_files_;
  receipt.files_kept = kept_files_;
  receipt.stored_bytes = manifest_.stored_bytes();
  receipt.written_bytes = present_written_bytes_ + counts_.bytes;
  receipt.read_bytes = read_bytes_;
  receipt.reused_bytes = reused_bytes_;
  receipt.checked_md5 = counts_.md5;
  receipt.checked_gzip = counts_.gzip;
  receipt.setbacks = setbacks_;
  receipt.older = older_;
  receipt.seconds = std::chrono::duration<double>(took).count();
  for (const auto& [number, reason] : state_.failures())
    receipt.failed.emplace_back(manifest_.entries[number].target, reason);
  std::ranges::sort(receipt.failed);
  GYRE_CHECK(receipt.files_fetched + receipt.files_present + receipt.files_kept + receipt.failed.size() ==
             receipt.files);
  return receipt;
}

Receipt Staging::run() {
  const auto began = SteadyClock::now();
  log_.begin_set(set_);
  plan();
  std::exception_ptr failure;
  {
    Crew crew;
    for (int i = 0; i < options_.workers; ++i) crew.start("staging", [this, stop = crew.stop()] { work(stop); });
    for (int i = 0; i < options_.connections; ++i)
      crew.start("staging", [this, stop = crew.stop()] { read_pieces(stop); });
    watch(crew);
    failure = crew.failure();
  }
  sync();
  if (stopped_)
    throw Error(ErrorCode::kAborted, "stopped; what has arrived stays, and the same command goes on from there");
  if (failure) std::rethrow_exception(failure);
  Receipt proof = receipt(SteadyClock::now() - began);
  if (proof.complete()) {
    folder_.remove_parts();
    proof.leftovers = settle_leftovers(manifest_, set_, options_.leftovers, folder_, log_);
  }
  write_file_atomically(folder_.own() / "receipt.json", as_bytes(proof.json()));
  return proof;
}

}  // namespace

Receipt stage(const Manifest& manifest, const std::vector<std::unique_ptr<Source>>& sources,
              const StageOptions& options) {
  return Staging(manifest, sources, options).run();
}

}  // namespace gyre::store
