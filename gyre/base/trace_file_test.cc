// A trace is for looking at after things went wrong, so it must be readable whenever its writer is stopped.
#include "gyre/base/trace_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "gyre/base/error.h"

namespace gyre {
namespace {

class TraceFileTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / fmt::format("gyre_trace_{}.json", ::getpid());
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string text() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path path_;
};

TEST_F(TraceFileTest, is_valid_after_every_append) {
  TraceFile file(path_, R"({"a":0})");
  for (int event = 1; event < 50; ++event) {
    EXPECT_EQ(nlohmann::json::parse(text()).size(), static_cast<std::size_t>(event));
    file.append(fmt::format(",\n{{\"a\":{}}}", event));
  }
}

TEST_F(TraceFileTest, is_completed_wherever_its_last_write_was_torn) {
  TraceFile file(path_, R"({"a":0})");
  file.append(",\n{\"b\":\"},\\n{\"}");
  file.append(",\n{\"c\":{}}");
  const std::string whole = text();
  for (std::size_t length = whole.find('}') + 1; length <= whole.size(); ++length) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << whole.substr(0, length);
    EXPECT_TRUE(complete_trace_file(path_)) << length;
    const auto events = nlohmann::json::parse(text());
    EXPECT_GE(events.size(), 1U) << length;
    if (length == whole.size()) {
      EXPECT_EQ(text(), whole);
    }
  }
}

TEST_F(TraceFileTest, other_files_are_left_alone) {
  EXPECT_FALSE(complete_trace_file(path_));
  std::ofstream(path_) << "a letter }";
  EXPECT_FALSE(complete_trace_file(path_));
  EXPECT_EQ(text(), "a letter }");
}

TEST_F(TraceFileTest, a_path_that_cannot_be_written_is_one_clear_error) {
  EXPECT_THROW(TraceFile(path_ / "missing" / "x.json", "{}"), Error);
}

}  // namespace
}  // namespace gyre
