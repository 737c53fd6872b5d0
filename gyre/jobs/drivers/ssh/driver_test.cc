// Jobs on hosts behind ssh must behave as on virtual nodes: the same suite, against real sshd that
// tests/e2e/ssh_driver_test.py starts: GYRE_TEST_SSH names their folder, GYRE_TEST_SSH_KEYS their keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "gyre/base/error.h"
#include "gyre/jobs/drivers/driver_conformance.h"
#include "gyre/jobs/drivers/engine_driver.h"
#include "gyre/jobs/drivers/ssh/engine.h"
#include "gyre/jobs/drivers/ssh/options.h"

namespace gyre::jobs::drivers {
namespace {

namespace fs = std::filesystem;

/// Hosts, each an sshd with an address and a /…/local of its own.
class SshFixture {
 public:
  static constexpr bool kNodesShareAFolder = false;

  explicit SshFixture(const fs::path& folder)
      : cluster_(std::getenv("GYRE_TEST_SSH")),
        options_(ssh::options_from({{"hosts", "h1, h2, h3"},
                                    {"host_keys", std::getenv("GYRE_TEST_SSH_KEYS")},
                                    {"ssh_config", (cluster_ / "ssh_config").string()},
                                    {"node_folder", (cluster_ / "local").string()},
                                    {"address", "127.0.0.1"}})) {
    options_.folder = folder / "service";
    options_.logs = {.folder = folder / "service/logs"};
    options_.program = GYRE_PROGRAM;
    options_.environment = {{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, {"HOME", "/"}};
    options_.lease = std::chrono::milliseconds(3'000);
    options_.margin = std::chrono::milliseconds(1'500);
    options_.poll = std::chrono::milliseconds(200);
    options_.give_up = std::chrono::seconds(5);
    fs::create_directories(options_.folder);
    restart();
    driver_->reattach({});
  }
  ~SshFixture() {
    driver_.reset();
    ssh::SshEngine engine(options_);
    EXPECT_TRUE(conformance::wait_until([&] {
      const std::vector<Holding> left = engine.list();
      for (const Holding& holding : left) {
        if (!holding.is_over()) engine.release(holding.id);
      }
      return std::ranges::all_of(left, &Holding::is_over);
    }));
    EXPECT_TRUE(conformance::wait_until([&] { return roots().empty(); }));
  }
  SshFixture(const SshFixture&) = delete;
  SshFixture& operator=(const SshFixture&) = delete;

  Driver& driver() { return *driver_; }
  std::vector<orders::NodePlace> places(int count) const {
    std::vector<orders::NodePlace> places;
    for (int i = 0; i < count; ++i) places.push_back(driver_->place("node-" + std::to_string(i), i + 1));
    return places;
  }
  void restart() {
    driver_.reset();
    driver_ = std::make_unique<EngineDriver>("ssh", options_, std::make_shared<ssh::SshEngine>(options_));
  }
  void kill_program(const std::string& node) const { signal_program(node, SIGKILL); }
  /// It hangs: it neither renews its lease nor ends.
  void lose_node(const std::string& node) const { signal_program(node, SIGSTOP); }

  std::vector<std::string> processes_of(const std::string& attempt) const {
    std::vector<std::string> found;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
      const std::string variables = conformance::content_of(entry.path() / "environ");
      if (variables.find("GYRE_JOB_ATTEMPT=" + attempt + '\0') != std::string::npos) found.push_back(entry.path());
    }
    return found;
  }
  fs::path log_store() const { return options_.logs.folder; }

 private:
  /// Of nodes, on all hosts.
  std::vector<fs::path> roots() const {
    std::vector<fs::path> found;
    std::error_code ignored;
    for (const auto& host : fs::directory_iterator(cluster_ / "nodes")) {
      for (const auto& root : fs::directory_iterator(host.path(), ignored)) {
        if (root.path().filename().string().starts_with("gyre-")) found.push_back(root.path());
      }
    }
    return found;
  }

  /// The host is any; the node program's name ends with the number of its place.
  void signal_program(const std::string& node, int signal) const {
    const std::string number = node.substr(node.rfind('-'));
    for (const fs::path& root : roots()) {
      int pid = 0;
      std::ifstream(root / "agent.lock") >> pid;
      const std::string words = conformance::content_of("/proc/" + std::to_string(pid) + "/cmdline");
      if (pid > 1 && words.find(number + '\0' + "--root") != std::string::npos) ::kill(pid, signal);
    }
  }

  fs::path cluster_;
  ssh::SshOptions options_;
  std::unique_ptr<EngineDriver> driver_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Ssh, DriverConformance, SshFixture);

}  // namespace
}  // namespace gyre::jobs::drivers
