// What a specification can get wrong must be one sentence that names the field, before anything is started.
#include "gyre/launch/spec.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gyre/base/error.h"

namespace gyre::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

LaunchSpec parsed(const std::string& json) { return parse_launch_spec(json, {"PATH=/bin", "A=outer"}); }

std::string refusal_of(const std::string& json) {
  try {
    static_cast<void>(parsed(json));
    return "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
}

/// A specification of one rank that has these further members.
std::string rank_with(const std::string& members) {
  return R"({"ranks": [{"command": ["true"])" + (members.empty() ? "" : ", " + members) + "}]}";
}

TEST(launch_spec, every_field_arrives) {
  const LaunchSpec spec = parsed(R"({"ranks": [
      {"command": ["python", "a b.py"], "environment": {"A": "1", "B": "ä=2"}, "folder": "/data", "role": "worker",
       "index": 4, "role_size": 9, "stdout": "/logs/out", "stderr": "/logs/err", "count": 2,
       "user": {"id": 1000, "group": 100, "groups": [5, 6]}, "cgroups": ["/sys/fs/cgroup/x"], "inherited": {"S": 7}},
      {"command": ["ps"]}],
    "job": {"node": 1, "nodes": 2, "first_rank": 3, "size": 6, "rendezvous": "tcp:h:1", "key": ")" +
                                 std::string(64, 'f') + R"("},
    "master_address": "h", "master_port": 29500, "run_id": "r", "restarts": 1, "max_restarts": 2, "timeline": "/t",
    "log_level": "debug", "socket": "/run/s", "grace_seconds": 9, "linger_seconds": 0, "keep_bytes": 65536,
    "metrics": "/m", "metrics_bytes": 70000, "metrics_first": 12})");
  ASSERT_EQ(spec.ranks.ranks.size(), 3U);
  const RankSpec& rank = spec.ranks.ranks[1];
  EXPECT_THAT(rank.command, ElementsAre("python", "a b.py"));
  EXPECT_THAT(rank.environment, UnorderedElementsAre("PATH=/bin", "A=1", "B=ä=2"));
  EXPECT_EQ(rank.folder, "/data");
  EXPECT_EQ(rank.role, "worker");
  EXPECT_EQ(rank.index, 5);  // The second of its count.
  EXPECT_EQ(rank.role_size, 9);
  EXPECT_EQ(rank.user, (UserId{.user = 1000, .group = 100, .groups = {5, 6}}));
  EXPECT_THAT(rank.cgroups, ElementsAre("/sys/fs/cgroup/x"));
  ASSERT_EQ(rank.inherited.size(), 1U);
  EXPECT_EQ(rank.inherited[0].descriptor, 7);
  EXPECT_EQ(spec.files[1].stdout_path, "/logs/out");
  EXPECT_EQ(spec.files[2].stdout_path, "");
  EXPECT_THAT(spec.ranks.part->ranks, ElementsAre(3, 4, 5));
  ASSERT_TRUE(spec.ranks.part->key);
  EXPECT_EQ(hex_of(*spec.ranks.part->key), std::string(64, 'f'));
  EXPECT_EQ(spec.ranks.master_port, 29500);
  EXPECT_EQ(spec.grace, std::chrono::seconds(9));
  EXPECT_EQ(spec.linger, std::chrono::seconds(0));
  EXPECT_EQ(spec.socket, "/run/s");
  EXPECT_EQ(spec.metrics, "/m");
  EXPECT_EQ(spec.metrics_bytes, 70'000U);
  EXPECT_EQ(spec.metrics_first, 12);
}

TEST(launch_spec, what_is_wrong_is_named) {
  for (const auto& [json, words] : {
           std::pair<std::string, std::string>{"{", "the specification is not valid JSON"},
           {"[]", "the specification must be an object"},
           {"{}", "ranks must be an array of at least one rank"},
           {R"({"ranks": [{}]})", "ranks[0].command must name a program"},
           {R"({"ranks": [{"command": ["a", 1]}]})", "ranks[0].command[1] must be a string"},
           {rank_with(R"("comand": 1)"), "ranks[0].comand is not a field that is known here"},
           {rank_with(R"("environment": {"A=B": "1"})"), "ranks[0].environment.A=B is not the name of a variable"},
           {rank_with(R"("environment": {"A": "\u0000"})"), "ranks[0].environment.A holds a character NUL"},
           {rank_with(R"("user": {"id": 1})"), "ranks[0].user needs an id and a group"},
           {rank_with(R"("user": {"id": -1, "group": 1})"), "ranks[0].user.id must be a whole number from 0"},
           {rank_with(R"("user": {"id": 4294967295, "group": 1})"), "ranks[0].user.id must be a whole number from 0"},
           {rank_with(R"("index": 1e3)"), "ranks[0].index must be a whole number"},
           {rank_with(R"("index": 18446744073709551615)"), "ranks[0].index must be a whole number"},
           {rank_with(R"("count": 4097)"), "ranks[0].count must be a whole number from 1 to 4096"},
           {rank_with(R"("inherited": {"S": 2})"), "ranks[0].inherited.S must be a whole number from 3"},
           {R"({"ranks": [{"command": ["a"]}], "job": {"rendezvous": "h"}})", "job.rendezvous must be tcp:HOST:PORT"},
           {R"({"ranks": [{"command": ["a"]}], "job": {"rendezvous": "tcp:h:1", "key": "0g"}})", "job.key must be 64"},
           {R"({"ranks": [{"command": ["a"]}], "grace_seconds": -1})", "grace_seconds must be a whole number from 0"},
       }) {
    EXPECT_THAT(refusal_of(json), HasSubstr(words)) << json;
  }
}

TEST(launch_spec, a_small_text_cannot_become_large) {
  const std::string large(100'000, 'x');
  EXPECT_THAT(refusal_of(rank_with(fmt::format(R"("environment": {{"A": "{}"}}, "count": 4096)", large))),
              HasSubstr("ranks are too many"));
  EXPECT_THAT(refusal_of(R"({"ranks": [{"command": ["a"], "count": 4096}, {"command": ["a"]}]})"),
              HasSubstr("ranks are too many"));
  EXPECT_THAT(refusal_of(std::string(kMostSpecBytes + 1, ' ')), HasSubstr("are the most"));
}

}  // namespace
}  // namespace gyre::launch
