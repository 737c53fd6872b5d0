// What a service is promised that runs the ranks of several jobs in one process: every test here is about one promise.
#include "gyre/launch/rank_set.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Keeps what it is told.
class Recorder : public RankEvents {
 public:
  void started(int rank, pid_t process) override { processes[rank] = process; }
  void output(int rank, Stream stream, std::string_view bytes) override {
    text[{rank, stream}] += bytes;
    if (bytes.empty()) ++streams_ended;
  }
  void ended(const ExitRecord& record) override { order_of_ends.push_back(record.rank); }
  void lost(const ExitRecord& record) override { lost_ranks.push_back(record.rank); }
  void note_for_other_hosts(const std::string& line) override { notes.push_back(line); }

  std::string out(int rank) { return text[{rank, Stream::kStdout}]; }
  std::string err(int rank) { return text[{rank, Stream::kStderr}]; }

  std::map<int, pid_t> processes;
  std::map<std::pair<int, Stream>, std::string> text;
  std::vector<int> order_of_ends;
  std::vector<int> lost_ranks;
  std::vector<std::string> notes;
  int streams_ended = 0;
};

RankSpec shell(const std::string& script) {
  RankSpec rank;
  rank.command = {"sh", "-c", script};
  rank.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  return rank;
}

RankSetOptions shells(const std::vector<std::string>& scripts) {
  RankSetOptions options;
  for (const std::string& script : scripts) options.ranks.push_back(shell(script));
  return options;
}

RankSetResult run(RankSetOptions options, Recorder& recorder) {
  RankSet ranks(std::move(options), recorder);
  ranks.start();
  ranks.run();
  return ranks.result();
}

std::string refusal_of(RankSetOptions options) {
  Recorder recorder;
  try {
    run(std::move(options), recorder);
    return "it was started";
  } catch (const Error& error) {
    return error.what();
  }
}

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    read = UniqueFd(ends[0]);
    write = UniqueFd(ends[1]);
  }
  std::string text() {
    write.reset();
    std::array<char, 4096> buffer{};
    const ssize_t count = ::read(read.get(), buffer.data(), buffer.size());
    return count > 0 ? std::string(buffer.data(), static_cast<std::size_t>(count)) : std::string();
  }
  UniqueFd read;
  UniqueFd write;
};

TEST(rank_set, every_rank_has_its_own_command_role_and_record) {
  RankSetOptions options = shells({"echo $GYRE_RANK $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE; echo oops >&2",
                                   "pwd; echo $GYRE_RANK of $GYRE_SIZE $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE"});
  options.ranks[0].role = "server";
  options.ranks[0].index = 0;
  options.ranks[0].role_size = 1;
  options.ranks[1].folder = "/usr";
  Recorder recorder;
  const RankSetResult result = run(std::move(options), recorder);
  EXPECT_EQ(recorder.out(0), "0 server 0/1\n");
  EXPECT_EQ(recorder.err(0), "oops\n");
  EXPECT_EQ(recorder.out(1), "/usr\n1 of 2 default 1/2\n");
  EXPECT_EQ(recorder.streams_ended, 4);
  EXPECT_EQ(result.exit_code(), 0);
  ASSERT_EQ(result.ranks.size(), 2U);
  EXPECT_EQ(result.ranks[0].role, "server");
  EXPECT_EQ(result.ranks[0].index, 0);
  EXPECT_EQ(result.ranks[1].rank, 1);
  EXPECT_EQ(result.ranks[1].process, recorder.processes[1]);
  EXPECT_EQ(recorder.notes.size(), 2U);
}

TEST(rank_set, the_first_failure_ends_the_others_and_is_on_record) {
  std::string ready = (std::filesystem::temp_directory_path() / "gyre-rank-set-XXXXXX").string();
  const UniqueFd file(::mkstemp(ready.data()));
  RankSetOptions options = shells({"exec sleep 1000", "until [ -s $READY ]; do sleep 0.01; done; exit 7",
                                   "trap '' TERM; echo deaf >$READY; while :; do sleep 1; done"});
  for (RankSpec& rank : options.ranks) rank.environment.push_back("READY=" + ready);
  Recorder recorder;
  const RankSetResult result = run(std::move(options), recorder);
  std::filesystem::remove(ready);
  EXPECT_EQ(result.first_failed_rank, 1);
  EXPECT_EQ(result.exit_code(), 7);
  EXPECT_THAT(result.ended_because, ElementsAre(0, 2));
  EXPECT_EQ(result.ranks[0].status.signal, SIGTERM);
  EXPECT_EQ(result.ranks[2].status.signal, SIGKILL);
  EXPECT_TRUE(result.ranks[0].asked_to_end);
  EXPECT_FALSE(result.ranks[1].asked_to_end);
  EXPECT_EQ(recorder.order_of_ends.front(), 1);
}

// Parameter servers on another host may go on without it.
TEST(rank_set, a_rank_that_has_failed_is_lost_once_that_is_decided_elsewhere) {
  RankSetOptions options = shells({"exit 3", "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE of $WORLD_SIZE"});
  options.part = HostPart{.node = 1, .nodes = 2, .ranks = {1, 4}, .size = 5, .rendezvous = "tcp:h:1", .key = {}};
  options.decided_elsewhere = true;
  Recorder recorder;
  RankSet ranks(std::move(options), recorder);
  ranks.start();
  for (const int rank : {0, 1, 4, 9}) ranks.lose(rank);  // Not ours, or still running.
  EXPECT_THAT(recorder.lost_ranks, ElementsAre());
  ranks.run();
  ranks.lose(1);
  ranks.lose(1);
  EXPECT_THAT(recorder.lost_ranks, ElementsAre(1));
  EXPECT_THAT(ranks.result().lost, ElementsAre(1));
  EXPECT_EQ(ranks.result().exit_code(), 0);
  EXPECT_EQ(recorder.out(4), "4 1 2 of 5\n");
}

TEST(rank_set, several_live_in_one_process_and_leave_its_signals_alone) {
  struct sigaction before{};
  ::sigaction(SIGPIPE, nullptr, &before);
  Recorder first;
  Recorder second;
  RankSet failing(shells({"echo $GYRE_RENDEZVOUS; exit 5", "echo $GYRE_RENDEZVOUS; exec sleep 1000"}), first);
  RankSet lasting(shells({"echo $GYRE_RENDEZVOUS; exec sleep 1000", "exec sleep 1000"}), second);
  failing.start();
  lasting.start();
  // On one thread, as an event loop has them.
  while (!failing.finished()) {
    std::array<pollfd, 2> ready = {
        {{.fd = failing.fd(), .events = POLLIN, .revents = 0}, {.fd = lasting.fd(), .events = POLLIN, .revents = 0}}};
    ::poll(ready.data(), ready.size(), -1);
    failing.advance();
    lasting.advance();
  }
  EXPECT_EQ(failing.result().first_failed_rank, 0);
  EXPECT_EQ(first.out(0), first.out(1));
  // The other one does not notice. It is stopped for itself, and each of its own.
  EXPECT_FALSE(lasting.finished());
  EXPECT_FALSE(lasting.ending());
  EXPECT_TRUE(lasting.stop(SIGTERM, std::chrono::seconds(20)));
  lasting.run();
  EXPECT_EQ(lasting.result().stopped_by, SIGTERM);
  EXPECT_EQ(lasting.result().exit_code(), 128 + SIGTERM);
  EXPECT_NE(first.out(0), second.out(0));
  struct sigaction after{};
  ::sigaction(SIGPIPE, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(rank_set, sets_on_different_threads_do_not_disturb_each_other) {
  constexpr int kSets = 4;
  std::array<Recorder, kSets> recorders;
  std::array<int, kSets> codes{};
  std::vector<std::thread> threads;
  for (int i = 0; i < kSets; ++i) {
    threads.emplace_back([&, i] {
      const auto index = static_cast<std::size_t>(i);
      codes[index] = run(shells({fmt::format("echo set {}; exit {}", i, i)}), recorders[index]).exit_code();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kSets; ++i) {
    EXPECT_EQ(codes[static_cast<std::size_t>(i)], i);
    EXPECT_EQ(recorders[static_cast<std::size_t>(i)].out(0), fmt::format("set {}\n", i));
  }
}

TEST(rank_set, output_goes_to_a_file_a_pipe_or_the_owner) {
  std::string pattern = (std::filesystem::temp_directory_path() / "gyre-rank-set-XXXXXX").string();
  const UniqueFd file(::mkstemp(pattern.data()));
  Pipe pipe;
  RankSetOptions options = shells({"echo into the file; echo to the owner >&2", "echo into the pipe"});
  options.ranks[0].stdout_fd = file.get();
  options.ranks[1].stdout_fd = pipe.write.get();
  Recorder recorder;
  EXPECT_EQ(run(std::move(options), recorder).exit_code(), 0);
  EXPECT_EQ(as_text(read_file(pattern, 100)), "into the file\n");
  EXPECT_EQ(pipe.text(), "into the pipe\n");
  EXPECT_EQ(recorder.err(0), "to the owner\n");
  EXPECT_EQ(recorder.out(0) + recorder.out(1), "");
  std::filesystem::remove(pattern);
}

TEST(rank_set, paused_output_stays_with_the_ranks_and_none_is_lost) {
  Recorder recorder;
  RankSet ranks(shells({"seq 1 30000"}), recorder);
  ranks.pause_output(true);
  ranks.start();
  for (int i = 0; i < 20; ++i) {
    pollfd ready{.fd = ranks.fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&ready, 1, 10), 0);  // Its pipe is full; there is nothing to do.
    ranks.advance();
  }
  EXPECT_EQ(recorder.out(0), "");
  ranks.pause_output(false);
  ranks.run();
  EXPECT_TRUE(recorder.out(0).ends_with("\n29999\n30000\n"));
}

TEST(rank_set, a_rank_inherits_a_listening_socket_under_a_variable) {
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(listener);
  RankSetOptions options =
      shells({"test -S /proc/self/fd/$SERVICE_FD && echo socket $SERVICE_FD", "echo [$SERVICE_FD]"});
  options.ranks[0].inherited = {{"SERVICE_FD", listener.get()}};
  Recorder recorder;
  EXPECT_EQ(run(std::move(options), recorder).exit_code(), 0);
  EXPECT_EQ(recorder.out(0), fmt::format("socket {}\n", listener.get()));
  EXPECT_EQ(recorder.out(1), "[]\n");
  RankSetOptions wrong = shells({"true"});
  wrong.ranks[0].inherited = {{"SERVICE_FD", 999'999}};
  EXPECT_THAT(refusal_of(std::move(wrong)), HasSubstr("cannot inherit descriptor 999999"));
}

TEST(rank_set, ranks_of_another_user_get_their_job_and_end_with_it) {
  RankSetOptions options = shells({"id -u; head -c 32 <&$GYRE_KEY_FD | wc -c; exec sleep 1000", "id -u; exit 3"});
  for (RankSpec& rank : options.ranks) rank.user = UserId{.user = 65'534, .group = 65'534, .groups = {}};
  if (::geteuid() != 0) {
    EXPECT_THAT(refusal_of(std::move(options)), HasSubstr("it cannot run as user 65534"));
    return;
  }

  Recorder recorder;
  const RankSetResult result = run(std::move(options), recorder);
  EXPECT_EQ(result.first_failed_rank, 1);
  EXPECT_EQ(recorder.out(1), "65534\n");
  EXPECT_EQ(result.ranks[0].status.signal, SIGTERM);
}

/// A cgroup of our own, of the first version's hierarchy or of the second's; no path where we may make none.
class Cgroup {
 public:
  Cgroup() {
    for (const char* root : {"/sys/fs/cgroup/pids", "/sys/fs/cgroup"}) {
      const std::filesystem::path folder = fmt::format("{}/gyre-rank-set-test-{}", root, ::getpid());
      std::error_code failure;
      if (std::filesystem::create_directory(folder, failure) && std::filesystem::exists(folder / "cgroup.procs")) {
        path = folder;
        return;
      }
      std::filesystem::remove(folder, failure);
    }
  }
  ~Cgroup() {
    std::error_code failure;
    if (!path.empty()) std::filesystem::remove(path, failure);
  }
  std::filesystem::path path;
};

TEST(rank_set, a_rank_and_what_it_starts_are_in_its_cgroup_from_the_first_instruction) {
  const Cgroup cgroup;
  RankSetOptions options = shells({"cat /proc/self/cgroup"});
  if (cgroup.path.empty()) {  // Not root, or a container without cgroups.
    options.ranks[0].cgroups = {"/no/such/cgroup"};
    EXPECT_THAT(refusal_of(std::move(options)), HasSubstr("is not a cgroup that it can enter"));
    return;
  }
  options.ranks[0].cgroups = {cgroup.path.string()};
  Recorder recorder;
  EXPECT_EQ(run(std::move(options), recorder).exit_code(), 0);
  EXPECT_THAT(recorder.out(0), HasSubstr(cgroup.path.filename().string()));
}

TEST(rank_set, none_runs_when_one_cannot_be_started) {
  RankSetOptions options = shells({"exec sleep 1000", "true"});
  options.ranks[1].command = {"/no/such/program"};
  Recorder recorder;
  {
    RankSet ranks(std::move(options), recorder);
    EXPECT_THROW(ranks.start(), SpawnError);
  }
  ASSERT_EQ(recorder.processes.size(), 1U);
  EXPECT_EQ(::kill(recorder.processes[0], 0), -1);
}

TEST(rank_set, options_that_make_no_sense_are_refused_before_anything_starts) {
  EXPECT_THAT(refusal_of({}), HasSubstr("0 ranks were asked for"));
  RankSetOptions options = shells({"true"});
  options.ranks[0].command.clear();
  EXPECT_THAT(refusal_of(std::move(options)), HasSubstr("no command to run"));
  options = shells({"true", "true"});
  options.part = HostPart{.node = 1, .nodes = 2, .ranks = {3, 4}, .size = 4, .rendezvous = "tcp:h:1", .key = {}};
  EXPECT_THAT(refusal_of(std::move(options)), HasSubstr("ranks 3 to 4 are not among the 4 of the job"));
}

}  // namespace
}  // namespace gyre::launch
