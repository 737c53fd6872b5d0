#pragma once

// What tests of drivers, and of what stands on them, have in common.

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/jobs/drivers/driver.h"

namespace gyre::jobs::drivers {

namespace conformance {

namespace fs = std::filesystem;

inline constexpr std::chrono::seconds kLongestWait{60};

inline std::string content_of(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A file of a test's; scripts can be run.
inline void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
  fs::permissions(path, fs::perms(0755));
}

inline bool wait_until(const std::function<bool()>& holds) {
  const Deadline deadline = Deadline::after(kLongestWait);
  while (!holds()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// A folder that the jobs' user may enter, and which is gone at the end.
class PublicFolder {
 public:
  PublicFolder() {
    std::string name = "/tmp/gyre-jobs-XXXXXX";
    path_ = ::mkdtemp(name.data());
    ::chmod(path_.c_str(), 0755);
  }
  ~PublicFolder() { fs::remove_all(path_); }
  PublicFolder(const PublicFolder&) = delete;
  PublicFolder& operator=(const PublicFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// What fixtures of DriverConformance have in common.
class DriverFixture {
 public:
  DriverFixture() = default;
  virtual ~DriverFixture() = default;
  DriverFixture(const DriverFixture&) = delete;
  DriverFixture& operator=(const DriverFixture&) = delete;

  Driver& driver() { return *driver_; }
  /// A new one in the place of one that is gone without a word.
  void restart() {
    end();
    driver_ = make_driver();
  }
  void end() { driver_.reset(); }
  void kill_program(const std::string& node) const { signal_program(node, SIGKILL); }
  /// It hangs: it neither renews its lease nor ends.
  void lose_node(const std::string& node) const { signal_program(node, SIGSTOP); }

  /// Their folders in /proc.
  static std::vector<std::string> processes_of(const std::string& attempt) {
    std::vector<std::string> found;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
      const std::string variables = content_of(entry.path() / "environ");
      if (variables.find("GYRE_JOB_ATTEMPT=" + attempt + '\0') != std::string::npos) found.push_back(entry.path());
    }
    return found;
  }

 protected:
  virtual std::unique_ptr<Driver> make_driver() const = 0;
  /// One that has not come yet is nobody.
  virtual void signal_program(const std::string& node, int signal) const = 0;

 private:
  std::unique_ptr<Driver> driver_;
};

/// Of the driver of an engine, whose nodes are any hosts of its own choice.
template <typename Options>
class EngineFixture : public DriverFixture {
 public:
  static constexpr bool kNodesShareAFolder = false;

  std::vector<orders::NodePlace> places(int count) {
    std::vector<orders::NodePlace> places;
    for (int i = 0; i < count; ++i) places.push_back(driver().place("node-" + std::to_string(i), i + 1));
    return places;
  }
  const Options& options() const { return options_; }
  fs::path log_store() const { return options_.logs.folder; }

 protected:
  EngineFixture(const fs::path& folder, Options options) : options_(std::move(options)) {
    options_.folder = folder / "service";
    options_.logs = {.folder = folder / "service/logs"};
    options_.address = "127.0.0.1";
    options_.environment["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    options_.lease = std::chrono::milliseconds(3'000);
    options_.margin = std::chrono::milliseconds(1'500);
    options_.poll = std::chrono::milliseconds(200);
    options_.give_up = std::chrono::seconds(5);
  }

  void start() {
    restart();
    driver().reattach({});
  }

  /// The folders of nodes, on all hosts.
  virtual std::vector<fs::path> roots() const = 0;
  /// The node program's name ends with the number of its place.
  void signal_program(const std::string& node, int signal) const override {
    const std::string number = node.substr(node.rfind('-'));
    for (const fs::path& root : roots()) {
      int pid = 0;
      std::ifstream(root / "agent.lock") >> pid;
      const std::string words = content_of("/proc/" + std::to_string(pid) + "/cmdline");
      if (pid > 1 && words.find(number + '\0' + "--root") != std::string::npos) ::kill(pid, signal);
    }
  }
  static void add_folders(const fs::path& parent, std::vector<fs::path>& found) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(parent, ignored)) found.push_back(entry.path());
  }

  Options options_;
};

}  // namespace conformance

}  // namespace gyre::jobs::drivers
