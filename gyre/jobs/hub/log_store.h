#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/jobs/orders/log_stream.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::hub {

namespace internal {
struct LogStream;
}

struct LogStoreOptions {
  /// Of all logs that nodes send; a folder for each job, by its uuid. Empty: none are taken.
  std::filesystem::path folder;
  std::uint64_t keep_free_bytes = 0;  ///< Of the file system.
};

/// Where the logs of an order's job come to lie. Pure.
std::filesystem::path received_logs(const std::filesystem::path& store, const orders::WorkOrder& order);
/// Makes that folder, of a job that has none yet: until there is one, what its nodes show is all there is. Error(kIo).
void make_log_folder(const std::filesystem::path& store, const orders::WorkOrder& order);

/// The service's end of the streams of logs (ADR 127): writes each byte once, in order, into files that are named as
/// the node's are, and always knows, also after it was killed, how much of each it has. What an attempt sends goes
/// behind what earlier ones have sent. When a job's logs are as long as they may be, or the disk is as full as it may
/// be, a line says so, and the rest is dropped; nothing ever waits for room. Not thread-safe.
class LogStore {
 public:
  struct Answer {
    std::uint16_t type = 0;  ///< kLogFrom or kLogTaken.
    orders::LogPlace place;
  };
  struct Note {
    std::string attempt;
    std::string text;  ///< A sentence for the job's events.
  };

  explicit LogStore(LogStoreOptions options);
  ~LogStore();
  LogStore(const LogStore&) = delete;
  LogStore& operator=(const LogStore&) = delete;

  /// Its nodes will send logs. Attempts that are not expected send what is missing of what they had begun.
  void expect(const orders::WorkOrder& order);
  /// Nobody waits for it any more.
  void release(const std::string& attempt);

  Answer open(const std::string& node, const orders::LogPlace& place);
  Answer write(const std::string& node, const orders::LogPiece& piece);
  Answer cut(const std::string& node, const orders::LogPlace& place);
  /// Once it returns, what the node has sent is on the disk.
  void finish(const std::string& node, const std::string& attempt);

  std::vector<Note> take_notes();

 private:
  struct Job;
  struct Stream;

  Job* find_job(const std::string& attempt);
  static Stream& begin(Job& job, const internal::LogStream& key);
  void write_in(Job& job, Stream& stream, const orders::LogPiece& piece);
  void fill(Job& job, const Stream& stream, const std::string& attempt, const std::string& why);
  bool disk_has_room(std::uint64_t bytes);

  const LogStoreOptions options_;
  std::map<std::string, orders::WorkOrder> expected_;  ///< By attempt; without secrets.
  std::map<std::string, std::unique_ptr<Job>> jobs_;   ///< By uuid.
  std::vector<Note> notes_;
  std::uint64_t room_ = 0;  ///< Of the disk, when it was looked at last, without what was written since.
  Deadline room_known_until_ = Deadline::after(std::chrono::milliseconds(0));
};

}  // namespace gyre::jobs::hub
