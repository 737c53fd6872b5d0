#include "gyre/jobs/node/detached_program.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "gyre/base/error.h"
#include "gyre/base/pipe.h"
#include "gyre/base/process.h"
#include "gyre/jobs/containers/program_files.h"
#include "gyre/jobs/node/job_environment.h"

namespace gyre::jobs::node {

namespace {

constexpr std::chrono::seconds kLongestStart{60};
constexpr std::size_t kMostWords = std::size_t{64} << 10;

Words read_both(const UniqueFd& out, const UniqueFd& error, const std::string& program) {
  Words words;
  const Deadline deadline = Deadline::after(kLongestStart);
  std::array<pollfd, 2> waits = {{{out.get(), POLLIN, 0}, {error.get(), POLLIN, 0}}};
  std::array<std::string*, 2> texts = {&words.out, &words.error};
  // A whole line on stdout is what such a program says when it works; an error comes with the end of both.
  while ((waits[0].fd >= 0 || waits[1].fd >= 0) && !words.out.ends_with('\n')) {
    if (::poll(waits.data(), waits.size(), deadline.poll_timeout_ms()) == 0) {
      throw Error(ErrorCode::kTimeout, fmt::format("{} did not start within {} s", program, kLongestStart.count()));
    }
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents == 0) continue;
      std::array<char, 4096> bytes;
      const ssize_t count = ::read(waits[i].fd, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        waits[i].fd = -1;
      } else if (texts[i]->size() < kMostWords) {
        texts[i]->append(bytes.data(), static_cast<std::size_t>(count));
      }
    }
  }
  return words;
}

}  // namespace

Words start_detached(const std::vector<std::string>& command, const Variables& environment,
                     const std::vector<int>& descriptors) {
  Pipe out = make_pipe();
  Pipe error = make_pipe();
  SpawnOptions options;
  // An image need not have it.
  const bool contained = command.front() == containers::kProgramInContainer;
  options.argv = contained ? std::vector<std::string>{command.front(), "detach"}
                           : std::vector<std::string>{"/usr/bin/setsid", "--fork"};
  options.argv.insert(options.argv.end(), command.begin(), command.end());
  options.environment = as_entries(environment);
  options.inherited_fds = descriptors;
  options.stdout_fd = out.write.get();
  options.stderr_fd = error.write.get();
  options.folder = "/";
  const Process starter = Process::spawn(options);
  out.write.reset();
  error.write.reset();
  Words words = read_both(out.read, error.read, command.front());
  starter.wait(Deadline::after(kLongestStart));
  while (words.error.ends_with('\n')) words.error.pop_back();
  return words;
}

}  // namespace gyre::jobs::node
