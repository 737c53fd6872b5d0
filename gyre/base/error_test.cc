// Codes and their names travel on the wire and into scripts; messages are what people act on.
#include "gyre/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <stdexcept>

namespace gyre {
namespace {

TEST(error, numbers_and_names_of_codes_are_stable) {
  const std::pair<int, std::string_view> rows[] = {
      {1, "INTERNAL"},
      {2, "INVALID_ARGUMENT"},
      {3, "MISMATCH"},
      {4, "TIMEOUT"},
      {5, "PEER_LOST"},
      {6, "PEER_LEFT"},
      {7, "ABORTED"},
      {8, "PROTOCOL"},
      {9, "AUTHENTICATION"},
      {10, "CORRUPT_DATA"},
      {11, "NOT_FOUND"},
      {12, "IO"},
      {13, "RESOURCE_EXHAUSTED"},
      {14, "UNSUPPORTED"},
      {15, "SHUT_DOWN"},
  };
  for (const auto& [number, name] : rows) EXPECT_EQ(error_code_name(static_cast<ErrorCode>(number)), name);
  for (const auto& [number, name] : rows) EXPECT_EQ(error_code_from_number(number), static_cast<ErrorCode>(number));
  EXPECT_EQ(error_code_name(static_cast<ErrorCode>(9999)), "UNKNOWN");
  EXPECT_EQ(error_code_from_number(9999), ErrorCode::kInternal);
  EXPECT_EQ(error_code_from_number(-1), ErrorCode::kInternal);
}

TEST(error, context_goes_in_front_of_the_message) {
  Error error(ErrorCode::kPeerLost, "rank 2 closed its connection");
  error.add_context("allreduce of layer1.weight").add_context("step 7");
  EXPECT_STREQ(error.what(), "step 7: allreduce of layer1.weight: rank 2 closed its connection");
  EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
}

TEST(error, a_copy_survives_what_it_was_copied_from) {
  const Error copy = [] { return Error(Error(ErrorCode::kIo, "disk gone")); }();
  EXPECT_STREQ(copy.what(), "disk gone");
}

TEST(error, the_errno_of_a_call_decides_its_code) {
  EXPECT_EQ(system_error("open a", ENOENT).code(), ErrorCode::kNotFound);
  EXPECT_EQ(system_error("open a", ENOTDIR).code(), ErrorCode::kNotFound);
  EXPECT_EQ(system_error("write a", ENOSPC).code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(system_error("write a", EDQUOT).code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(system_error("open a", EMFILE).code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(system_error("write a", EIO).code(), ErrorCode::kIo);
  EXPECT_STREQ(system_error("open a", ENOENT).what(), "open a: No such file or directory");
}

TEST(error, any_exception_can_be_described) {
  EXPECT_EQ(describe(std::make_exception_ptr(Error(ErrorCode::kIo, "ours"))), "ours");
  EXPECT_EQ(describe(std::make_exception_ptr(std::runtime_error("theirs"))), "theirs");
  EXPECT_EQ(describe(std::make_exception_ptr(42)), "an exception of unknown type");
}

}  // namespace
}  // namespace gyre
