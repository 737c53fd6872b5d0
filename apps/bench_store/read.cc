#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "apps/bench_store/benches.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/data/readable_file.h"
#include "gyre/store/node/client.h"
#include "gyre/store/node/data_files.h"
#include "gyre/store/node/members.h"

namespace gyre::bench {

namespace {

using Clock = std::chrono::steady_clock;
using File = std::unique_ptr<const data::ReadableFile>;

constexpr std::string_view kStoreUrl = "store://";
constexpr std::chrono::milliseconds kDaemonWait{10'000};
constexpr std::uint64_t kReadAheadBytes = std::uint64_t{1} << 30;

void open_below(const data::FileOpener& opener, const std::string& folder, std::vector<File>& files) {
  auto entries = opener.folders().list(folder);
  std::ranges::sort(entries, {}, &data::FolderEntry::name);
  for (const data::FolderEntry& entry : entries) {
    const std::string path = folder + (folder.ends_with('/') ? "" : "/") + entry.name;
    if (entry.kind == data::FileKind::kFolder) open_below(opener, path, files);
    if (entry.kind == data::FileKind::kFile) files.push_back(opener(path));
  }
}

/// Files of a store by the node that owns them (their first chunk).
std::vector<File> open_of_owner(const std::string& folder, int owner) {
  const auto client = store::node::Client::open(folder, kDaemonWait);
  const auto members = client->members();
  const store::node::Catalog& catalog = client->catalog();
  std::vector<File> files;
  for (std::size_t entry = 0; entry < catalog.manifest().entries.size(); ++entry) {
    if (catalog.chunks_of(entry) == 0) continue;
    const int first = static_cast<int>(members.order(catalog.key(catalog.chunk(entry, 0))).front());
    if (owner >= 0 ? first == owner : first != -2 - owner)
      files.push_back(client->open_file(catalog.manifest().entries[entry].target));
  }
  return files;
}

/// Reads whole files in turns, from several threads.
class Reader {
 public:
  Reader(std::vector<File> files, std::size_t piece_bytes) : files_(std::move(files)), piece_bytes_(piece_bytes) {}

  std::size_t files() const { return files_.size(); }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t reads() const { return reads_; }

  /// Each file `rounds` times; but for one per thread, none is begun at or after `end`.
  void read(int threads, std::uint64_t rounds, Clock::time_point end) {
    std::atomic<std::uint64_t> next{0};
    const auto first = static_cast<std::uint64_t>(threads);
    const std::uint64_t last = rounds * files_.size();
    std::exception_ptr failure;
    std::mutex mutex;
    const auto work = [&] {
      try {
        Bytes buffer(piece_bytes_);
        for (std::uint64_t i = next++; i < last && (i < first || Clock::now() < end); i = next++)
          read_file(*files_[i % files_.size()], buffer);
      } catch (...) {
        next = last;
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    };
    std::vector<std::thread> helpers;
    for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
    for (std::thread& helper : helpers) helper.join();
    if (failure) std::rethrow_exception(failure);
  }

 private:
  void read_file(const data::ReadableFile& file, Bytes& buffer) {
    for (std::uint64_t done = 0; done < file.size_bytes();) {
      const auto part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), file.size_bytes() - done));
      file.read_at(done, part);
      done += part.size();
      bytes_ += part.size();
      ++reads_;
    }
  }

  std::vector<File> files_;
  std::size_t piece_bytes_;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> reads_{0};
};

}  // namespace

nlohmann::json read_files(const Reading& reading) {
  const auto sources = store::node::data_files_from_environment(kReadAheadBytes);
  const data::FileOpener opener = sources.opener();
  std::vector<File> files;
  if (reading.owner != -1) {
    if (!reading.place.starts_with(kStoreUrl)) {
      throw Error(ErrorCode::kInvalidArgument, reading.place + " is no store, whose nodes own files");
    }
    files = open_of_owner(reading.place.substr(kStoreUrl.size()), reading.owner);
  } else {
    open_below(opener, sources.add(reading.place), files);
  }
  if (files.empty()) throw Error(ErrorCode::kNotFound, reading.place + " has no such files");
  Reader reader(std::move(files), reading.piece_bytes);
  std::vector<double> rounds;
  const auto began = Clock::now();
  if (reading.seconds > 0) {
    reader.read(reading.threads, std::uint64_t{1} << 40,
                began + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(reading.seconds)));
  } else {
    for (int round = 0; round < reading.rounds; ++round) {
      const auto round_began = Clock::now();
      reader.read(reading.threads, 1, Clock::time_point::max());
      rounds.push_back(std::chrono::duration<double>(Clock::now() - round_began).count());
    }
  }
  const std::chrono::duration<double> spent = Clock::now() - began;
  return {{"bytes_per_second", static_cast<double>(reader.bytes()) / spent.count()},
          {"reads_per_second", static_cast<double>(reader.reads()) / spent.count()},
          {"bytes", reader.bytes()},
          {"reads", reader.reads()},
          {"files", reader.files()},
          {"round_seconds", rounds}};
}

}  // namespace gyre::bench
