#pragma once

// What tests of drivers, and of what stands on them, have in common.

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>

#include "gyre/base/clock.h"

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

}  // namespace conformance

}  // namespace gyre::jobs::drivers
