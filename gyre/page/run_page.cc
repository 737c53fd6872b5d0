#include "gyre/page/run_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/pipe.h"
#include "gyre/net/http/server.h"
#include "gyre/page/access.h"
#include "gyre/page/internal/run_view.h"

namespace gyre::page {

namespace {

constexpr int kPipeBytes = 1 << 20;
constexpr std::chrono::milliseconds kLookInterval{250};
constexpr std::chrono::milliseconds kBetweenLooksAtTheEnd{20};
constexpr std::chrono::milliseconds kBetweenLooksAtAProcess{5};
/// For the ends of streams to leave this process.
constexpr std::chrono::milliseconds kClosing{500};
constexpr std::chrono::seconds kLongestStart{10};
/// What a start that has failed says to the launcher begins so.
constexpr std::string_view kFailure = "!";

/// Lines that have come whole, off a descriptor that does not block. False at its end.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}

  template <typename Take>
  bool read(const Take& take) {
    std::array<char, 65'536> piece{};
    for (;;) {
      const ssize_t count = ::read(fd_, piece.data(), piece.size());
      if (count < 0) return errno == EAGAIN || errno == EINTR;
      if (count == 0) return false;
      held_.append(piece.data(), static_cast<std::size_t>(count));
      for (std::size_t end = held_.find('\n'); end != std::string::npos; end = held_.find('\n')) {
        take(std::string_view(held_).substr(0, end));
        held_.erase(0, end + 1);
      }
    }
  }

 private:
  int fd_;
  std::string held_;
};

/// Of the process that serves: feeds the view until the launcher has gone.
void follow(internal::RunView& view, int news) {
  LineReader reader(news);
  for (bool goes_on = true; goes_on;) {
    pollfd ready{.fd = news, .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, static_cast<int>(kLookInterval.count()));
    goes_on = reader.read([&view](std::string_view line) {
      if (const auto heard = metrics::parse_news(line)) view.hear(*heard);
    });
    view.look();
  }
}

void wait_while_watched(const internal::RunView& view, std::chrono::milliseconds longest) {
  const Deadline deadline = Deadline::after(longest);
  while (view.is_watched() && !deadline.passed()) ::poll(nullptr, 0, kBetweenLooksAtTheEnd.count());
}

/// A viewer that has fetched the end leaves.
void say_farewell(internal::RunView& view, std::chrono::milliseconds longest) {
  view.end();
  wait_while_watched(view, longest);
  view.close();
  wait_while_watched(view, kClosing);
}

/// A cookie goes to all ports of a host: another job's page must not replace ours.
std::string cookie_name() { return fmt::format("gyre-page-{}", ::getpid()); }

/// `answer`: closed when the launcher has its answer.
void serve(const RunPageOptions& options, int news, UniqueFd& answer) {
  auto view = std::make_shared<internal::RunView>(options.name, options.metrics, options.logs, options.others,
                                                  options.timeline);
  Access access(cookie_name());
  const Guard guard = [&access](net::http::Handler handler) { return access.guarded(std::move(handler)); };
  net::http::Router router;
  access.add_entry_routes(router);
  const std::string place(Access::kPlace);
  add_page_routes(router, place, options.files, PageKind::kJob, [&guard, view](const net::http::Handler& handler) {
    return guard([handler, view](net::http::Request& request) {
      view->opened();
      return handler(request);
    });
  });
  add_job_routes(router, place + "/api", [view](const net::http::Request&) { return view; }, guard);
  router.add(access.new_link_route("/api/links"));
  net::http::ServerOptions server_options;
  server_options.what = "the page";
  server_options.endpoints = {net::parse_endpoint(fmt::format("tcp:127.0.0.1:{}", options.port))};
  server_options.limits.handler_threads = 2;
  net::http::Server server(std::move(server_options), std::move(router));
  const std::string link = fmt::format("http://127.0.0.1:{}{}\n", server.endpoints().front().port, access.new_link());
  write_all(answer.get(), as_bytes(link), "cannot answer the launcher");
  answer.reset();
  follow(*view, news);
  say_farewell(*view, options.farewell);
  server.stop(std::chrono::milliseconds(0));
}

/// By both processes: either may be killed.
void remove_folder(const std::optional<std::filesystem::path>& folder) {
  std::error_code none;
  if (folder) std::filesystem::remove_all(*folder, none);
}

/// The other process. Never returns.
[[noreturn]] void be_the_page(const RunPageOptions& options, int news, UniqueFd answer) {
  ::setpgid(0, 0);  // Ctrl-C is for the launcher; this one ends with it.
  ::prctl(PR_SET_NAME, "gyre page");
  std::signal(SIGPIPE, SIG_IGN);
  int code = 0;
  try {
    // Whoever reads the launcher's output waits for its end, not for ours.
    const UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (int standard = 0; standard <= 2; ++standard) ::dup2(nothing.get(), standard);
    serve(options, news, answer);
  } catch (const std::exception& error) {
    const std::string words = fmt::format("{}{}\n", kFailure, error.what());
    [[maybe_unused]] const ssize_t ignored = ::write(answer.get(), words.data(), words.size());
    code = 1;
  }
  remove_folder(options.remove_at_end);
  ::_exit(code);
}

std::string read_answer(const UniqueFd& from) {
  std::string text;
  const Deadline deadline = Deadline::after(kLongestStart);
  while (!text.ends_with('\n')) {
    pollfd ready{.fd = from.get(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, deadline.poll_timeout_ms()) == 0) break;
    std::array<char, 4'096> piece{};
    const ssize_t count = ::read(from.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(count));
  }
  if (text.starts_with(kFailure)) {
    throw Error(ErrorCode::kIo, fmt::format("cannot serve the page: {}", text.substr(1, text.size() - 2)));
  }
  if (!text.ends_with('\n')) throw Error(ErrorCode::kIo, "cannot serve the page: its process has not begun");
  text.pop_back();
  return text;
}

}  // namespace

RunPage::RunPage(const RunPageOptions& options) : farewell_(options.farewell), remove_at_end_(options.remove_at_end) {
  Pipe news = make_pipe("a pipe for the page");
  Pipe answer = make_pipe("a pipe for the page");
  for (const int end : {news.read.get(), news.write.get()}) ::fcntl(end, F_SETFL, O_NONBLOCK);
  ::fcntl(news.write.get(), F_SETPIPE_SZ, kPipeBytes);  // What the system allows will do.
  process_ = ::fork();
  if (process_ < 0) throw system_error("cannot start a process for the page", errno);
  if (process_ == 0) {
    news.write.reset();
    answer.read.reset();
    be_the_page(options, news.read.get(), std::move(answer.write));
  }
  news_ = std::move(news.write);
  unread_ = std::move(news.read);
  answer.write.reset();
  try {
    link_ = read_answer(answer.read);
  } catch (const Error&) {
    news_.reset();
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    throw;
  }
}

RunPage::~RunPage() {
  finish();
  const Deadline deadline = Deadline::after(farewell_ + 2 * kClosing);
  while (!has_ended() && !deadline.passed()) ::poll(nullptr, 0, kBetweenLooksAtAProcess.count());
  give_up();
  remove_folder(remove_at_end_);
}

void RunPage::finish() { news_.reset(); }

bool RunPage::has_ended() {
  if (process_ != -1 && ::waitpid(process_, nullptr, WNOHANG) != 0) process_ = -1;
  return process_ == -1;
}

void RunPage::give_up() {
  if (has_ended()) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  process_ = -1;
}

void RunPage::tell(News news) {
  if (!news_) return;
  news.time_us = wall_clock_us();
  const std::string line = to_line(news);
  // A part of a line would spoil the next one.
  const ssize_t count = ::write(news_.get(), line.data(), line.size());
  if (count != static_cast<ssize_t>(line.size())) news_.reset();
}

}  // namespace gyre::page
