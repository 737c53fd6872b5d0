// A command without a file must become the very job that a file would have described.
#include "gyre/jobs/spec/command.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/jobs/spec/parse_test_support.h"

namespace gyre::jobs::spec {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

std::string refusal(const CommandJob& command) {
  try {
    job_of_command(command);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(command, is_the_job_that_a_file_describes) {
  CommandJob command;
  command.program = {"python", "train.py", "--name", "a b"};
  command.nodes = 2;
  command.processes_per_node = 4;
  command.restarts = 1;
  command.preparation = "pip install x";
  command.environment = {{"A", "1"}};
  EXPECT_EQ(job_of_command(command), clean_job(R"({"properties": {
    "nodeCount": 2,
    "environmentVariables": [{"name": "A", "value": "1"}],
    "jobPreparation": {"commandLine": "pip install x"},
    "gyreSettings": {"program": ["python", "train.py", "--name", "a b"], "processesPerNode": 4, "restarts": 1}}})"));
}

// That it is made, once, and used, is tested in tests/e2e/run_cluster_test.py.
TEST(command, requirements_reach_the_nodes_as_they_are_before_preparation_and_program) {
  CommandJob command;
  command.program = {"python3", "-c", "print($HOME)", "a b"};
  command.preparation = "echo prepared";
  command.requirements = "numpy # '$(false)' \"`false`\"\nEOF\n";
  const JobSpec job = job_of_command(command);
  const auto& program = std::get<GyreSettings>(job.toolkit).program;
  ASSERT_EQ(program.size(), 4 + command.program.size());
  EXPECT_EQ((std::vector(program.begin(), program.begin() + 2)), (std::vector<std::string>{"bash", "-c"}));
  EXPECT_EQ((std::vector(program.begin() + 4, program.end())), command.program);
  const std::string hash = hex(sha256(as_bytes(*command.requirements)));
  const std::string& lines = *job.job_preparation_command_line;
  EXPECT_THAT(lines, HasSubstr(fmt::format("<<'{0}'\n{1}\n{0}\n", hash, *command.requirements)));
  EXPECT_THAT(lines, EndsWith("\necho prepared"));
  EXPECT_THAT(program[2], HasSubstr(hash));
}

TEST(command, what_a_file_may_not_say_is_refused) {
  CommandJob valid;
  valid.program = {"x"};
  CommandJob command = valid;
  command.program.clear();
  EXPECT_EQ(refusal(command), "1: /properties/gyreSettings/program names no program");
  command = valid;
  command.nodes = 0;
  EXPECT_EQ(refusal(command), "1: /properties/nodeCount must be a whole number from 1 to 10000, not 0");
  command = valid;
  command.processes_per_node = 0;
  EXPECT_EQ(refusal(command),
            "1: /properties/gyreSettings/processesPerNode must be a whole number from 1 to 1000, not 0");
  command = valid;
  command.program = {"\xff"};
  EXPECT_EQ(refusal(command), "the command is not UTF-8 text");
  command = valid;
  command.preparation = "";
  EXPECT_EQ(refusal(command), "1: /properties/jobPreparation/commandLine is empty");
}

}  // namespace
}  // namespace gyre::jobs::spec
