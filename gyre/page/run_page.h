#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/metrics/news.h"
#include "gyre/metrics/series.h"
#include "gyre/page/routes.h"

namespace gyre::page {

using metrics::News;

struct RunPageOptions {
  std::string name{};                                        ///< Of the job, for people.
  int port = 0;                                              ///< On loopback; 0: a free one.
  std::filesystem::path metrics{};                           ///< The launcher's file, which may not be there yet.
  std::filesystem::path logs{};                              ///< Its folder of logs.
  std::optional<std::filesystem::path> remove_at_end{};      ///< A folder that goes with the page.
  std::vector<std::pair<std::string, metrics::Run>> others;  ///< Earlier runs to compare with, and their names.
  std::filesystem::path timeline{};                          ///< Of each rank (JobTimeline); empty: none.
  PageFiles files{};
  /// How long those who look have for fetching the end of the job.
  std::chrono::milliseconds farewell{10'000};
};

/// The page of one `gyre run`, in a process of its own: the launcher stays single-threaded, and no browser can delay or
/// end a training. The launcher tells it what happens, through a pipe; metrics and logs it reads from the files. It
/// ends with the launcher, however that ends.
class RunPage {
 public:
  /// For a single-threaded process. Returns when the page can be opened. Error(kInvalidArgument, kIo,
  /// kResourceExhausted).
  explicit RunPage(const RunPageOptions& options);
  /// finish(), and waits for the end of the process.
  ~RunPage();
  RunPage(const RunPage&) = delete;
  RunPage& operator=(const RunPage&) = delete;

  /// The link that opens it, once.
  const std::string& link() const { return link_; }
  pid_t process() const { return process_; }
  /// Does not wait: a page that does not listen any more is given up.
  void tell(News news);
  /// There are no more news. The process ends when each of those who look has fetched the end of the job, or does not
  /// look any more; RunPageOptions::farewell at most. At once where nobody looks.
  void finish();
  /// For waiting after finish().
  bool has_ended();
  /// Ends the process, whoever looks.
  void give_up();

 private:
  std::string link_;
  UniqueFd news_;
  UniqueFd unread_;     ///< The other end, so that a page that has ended is no SIGPIPE.
  pid_t process_ = -1;  ///< -1: has ended.
  std::chrono::milliseconds farewell_;
  std::optional<std::filesystem::path> remove_at_end_;
};

}  // namespace gyre::page
