#include "gyre/jobs/node/node_program.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "gyre/base/clock.h"
#include "gyre/jobs/node/internal/saved_attempt.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/notifier.h"
#include "gyre/net/socket.h"

namespace gyre::jobs::node {
namespace {

namespace fs = std::filesystem;

bool wait_until(const std::function<bool()>& holds) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  while (!holds() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return holds();
}

/// Counts the lines that say so.
class MovedAwayLines : public spdlog::sinks::base_sink<std::mutex> {
 public:
  int count() const { return count_; }

 private:
  void sink_it_(const spdlog::details::log_msg& line) override {
    const std::string_view text(line.payload.data(), line.payload.size());
    if (text.find("was moved away") != std::string_view::npos) ++count_;
  }
  void flush_() override {}

  std::atomic<int> count_{0};
};

/// A node program that looks for its service, and whatever it connects to ends every connection at once.
class NodeProgramTest : public testing::Test {
 protected:
  NodeProgramTest() {
    std::string name = "/tmp/gyre-node-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    options_.node.root = folder_ / "node";
    options_.node.gyre_program = folder_ / "none";
    options_.node_id = "node";
    options_.service = net::parse_endpoint("unix:" + (folder_ / "hub.sock").string());
    options_.key = [this] { return ++tries_, net::JobKey(); };
    options_.logger = std::make_shared<spdlog::logger>("", log_);
    listener_ = net::listen_on(options_.service);
    other_end_ = std::thread([this] {
      for (;;) {
        std::array<pollfd, 2> waits = {{{stop_.fd(), POLLIN, 0}, {listener_.get(), POLLIN, 0}}};
        ::poll(waits.data(), waits.size(), -1);
        if (waits[0].revents != 0) return;
        const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      }
    });
  }
  ~NodeProgramTest() override {
    stop_.notify();
    other_end_.join();
    if (thread_.joinable()) thread_.join();
    program_.reset();
    fs::remove_all(folder_);
  }
  void start() {
    program_ = std::make_unique<NodeProgram>(options_);
    thread_ = std::thread([this] { program_->run(stop_.fd()); });
  }

  fs::path folder_;
  NodeProgramOptions options_;
  std::atomic<int> tries_{0};
  std::shared_ptr<MovedAwayLines> log_ = std::make_shared<MovedAwayLines>();
  net::Notifier stop_;
  UniqueFd listener_;
  std::thread other_end_;
  std::unique_ptr<NodeProgram> program_;
  std::thread thread_;
};

TEST_F(NodeProgramTest, asks_for_the_key_at_every_try) {
  start();
  EXPECT_TRUE(wait_until([&] { return tries_ >= 3; }));
}

TEST_F(NodeProgramTest, tries_no_longer_once_its_folder_was_moved_away_and_another_lies_there) {
  start();
  ASSERT_TRUE(wait_until([&] { return tries_ >= 1; }));
  fs::rename(options_.node.root, folder_ / "moved");
  fs::create_directories(NodeFolders(options_.node.root).own());
  EXPECT_TRUE(wait_until([&] { return log_->count() == 1; }));
  const int tries = tries_;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(tries_, tries);
  EXPECT_TRUE(fs::is_empty(NodeFolders(options_.node.root).own()));
}

TEST_F(NodeProgramTest, writes_nothing_about_its_attempt_into_the_folder_that_took_the_place_of_its_own) {
  const NodeFolders folders(options_.node.root);
  fs::create_directories(folders.records());
  orders::WorkOrder order;
  order.attempt = "attempt-1";
  order.job_name = "job";
  order.cluster_name = "cluster";
  order.cluster.vm_size = "local";
  order.job.cluster_id = "c";
  order.job.std_out_err_path_prefix = "$AZ_BATCHAI_JOB_TEMP_DIR";
  order.job.toolkit = spec::CustomToolkitSettings{"true"};
  order.nodes = {{.id = "node", .address = "127.0.0.1", .cores = 1, .gpus = 0, .registered_as = ""}};
  order.shared_folder = folder_ / "shared";
  order.key = std::string(64, '0');
  internal::SavedAttempt state;
  state.order = order;
  state.step = internal::Step::kStopped;
  state.record.emplace();
  internal::save(state, folders);
  start();
  fs::rename(options_.node.root, folder_ / "moved");
  fs::create_directories(folders.records());
  EXPECT_TRUE(wait_until([&] { return fs::exists(NodeFolders(folder_ / "moved").record(order.attempt)); }));
  EXPECT_TRUE(fs::is_empty(folders.records()));
  EXPECT_FALSE(fs::exists(folders.current()));
}

}  // namespace
}  // namespace gyre::jobs::node
