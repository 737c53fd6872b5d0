#include "gyre/jobs/containers/internal/podman_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gyre::jobs::containers::internal {
namespace {

using testing::HasSubstr;
using testing::Not;

// Each of podman's many lines becomes one sentence that says what to do; the texts are podman 4.3's.
TEST(PodmanWords, every_reason_for_an_image_that_is_missing_is_one_sentence) {
  struct Row {
    std::string said;
    ErrorCode code;
    std::string sentence;
  };
  const ImageName open{.image = "team/train:1", .server = "reg.example", .user = {}, .password = {}};
  const ImageName closed{.image = "team/train:1", .server = "reg.example", .user = "ada", .password = "hush"};
  const std::vector<std::pair<ImageName, Row>> rows = {
      {open, {"reading manifest 1 in reg.example/team/train: manifest unknown", ErrorCode::kNotFound, "has no image"}},
      {open, {"unauthorized: authentication required", ErrorCode::kAuthentication, "imageSourceRegistry.credentials"}},
      {closed, {"unauthorized: authentication required", ErrorCode::kAuthentication, "refuses user 'ada'"}},
      {open,
       {"choosing an image from manifest list: no image found in manifest list for architecture amd64, variant \"\"",
        ErrorCode::kUnsupported, "processor"}},
      {open, {"write /x: no space left on device", ErrorCode::kResourceExhausted, "has no room"}},
      {open, {"dial tcp 127.0.0.1:1: connect: connection refused", ErrorCode::kIo, "cannot reach the registry"}},
      {open, {"http: server gave HTTP response to HTTPS client", ErrorCode::kIo, "insecure = true"}},
      {open,
       {"Error: invalid reference format: repository name must be lowercase", ErrorCode::kNotFound, "lower-case"}},
      {open, {"Error: something new", ErrorCode::kIo, "cannot be fetched: something new"}},
  };
  for (const auto& [name, row] : rows) {
    const Error error = fetch_error(name, row.said + "\n");
    EXPECT_EQ(error.code(), row.code) << row.said;
    EXPECT_THAT(error.what(), HasSubstr(row.sentence));
    EXPECT_THAT(error.what(), HasSubstr("reg.example"));
    EXPECT_THAT(error.what(), Not(HasSubstr("hush")));
  }
}

// No registry of that name is meant: it is where podman puts images that were built on the machine.
TEST(PodmanWords, an_image_of_the_machine_s_own_that_is_missing_is_no_unreachable_registry) {
  const Error error = fetch_error({.image = "localhost/trian:1", .server = {}, .user = {}, .password = {}},
                                  "dial tcp 127.0.0.1:443: connect: connection refused");
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(), HasSubstr("has no image localhost/trian:1; make it"));
  EXPECT_THAT(error.what(), HasSubstr("podman build -t trian:1"));
}

TEST(PodmanWords, a_recipes_image_that_has_moved_is_named_with_its_new_place) {
  const Error error =
      fetch_error({.image = "microsoft/cntk:2.1", .server = {}, .user = {}, .password = {}}, "manifest unknown");
  EXPECT_THAT(error.what(), HasSubstr("mcr.microsoft.com"));
}

TEST(podman_words, triggers_of_an_image_are_found_in_whatever_way_they_are_written) {
  for (const char* none : {R"({"config": {}})", R"({"config": {"OnBuild": null}})", R"({"config": {"OnBuild": []}})",
                           R"({"config": {"Env": ["OnBuild"]}, "x": [1, {"y": 2}]})"}) {
    EXPECT_FALSE(internal::has_triggers(none)) << none;
  }
  for (const char* some :
       {R"({"config": {"OnBuild": ["RUN x"]}})", R"({"CONFIG": {"ONBUILD": ["RUN x"]}})",
        R"({"config": {"\u006fnbuild": ["RUN x"]}})", R"({"config": {"OnBuild": ["RUN x"]}, "config": {}})",
        R"({"config": {"OnBuild": ["RUN x"], "OnBuild": null}})", R"({"config": {"OnBuild": [["RUN x"]]}})",
        R"({"config": {"OnBuild": {"0": "RUN x"}}})", R"({"config": )", "", "[]"}) {
    EXPECT_TRUE(internal::has_triggers(some)) << some;
  }
}

TEST(podman_words, name_the_instruction_that_fails_and_the_last_words_of_its_program) {
  const Error error = internal::build_error(
      "STEP 1/3: FROM 0123\nSTEP 2/3: LABEL a=b\n--> 456\nSTEP 3/3: RUN pip install nump\nCollecting\n",
      "ERROR: Could not find\nERROR: No matching\nError: building at STEP \"RUN pip install nump\": while running "
      "runtime: exit status 1\n");
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_STREQ(error.what(),
               "building at STEP \"RUN pip install nump\": while running runtime: exit status 1: ERROR: "
               "Could not find; ERROR: No matching");
  EXPECT_STREQ(internal::build_error("STEP 1/2: RUN x\nsaid\n", "Error: y\n").what(), "y: said");
  EXPECT_EQ(internal::build_error("", "write /x: no space left on device\nError: y\n").code(),
            ErrorCode::kResourceExhausted);
  EXPECT_EQ(internal::last_lines("a\nb\nc\n", 2), "b\nc");
  EXPECT_EQ(internal::last_lines("a\nb\n", 5), "a\nb");
  EXPECT_EQ(internal::last_lines("", 5), "");
}

}  // namespace
}  // namespace gyre::jobs::containers::internal
