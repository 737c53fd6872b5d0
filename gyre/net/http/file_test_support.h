#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "gyre/base/file.h"

namespace gyre::net::http {

/// A test with a file of its own, which has ten digits at first.
class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gyre_http_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder for the test");
    directory_ = pattern;
    write("0123456789");
  }
  ~FileTest() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path path() const { return directory_ / "file"; }
  UniqueFd open() const { return UniqueFd(::open(path().c_str(), O_RDONLY | O_CLOEXEC)); }
  void write(const std::string& text) const { std::ofstream(path()) << text; }
  void append(const std::string& text) const { std::ofstream(path(), std::ios::app) << text; }

  std::filesystem::path directory_;
};

}  // namespace gyre::net::http
