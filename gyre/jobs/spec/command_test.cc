// A command without a file must become the very job that a file would have described.
#include "gyre/jobs/spec/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"
#include "gyre/jobs/spec/parse_test_support.h"

namespace gyre::jobs::spec {
namespace {

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

// That it is made, once, and used, is tested in tests/e2e/environments_test.py.
TEST(command, requirements_are_those_that_a_file_would_have) {
  CommandJob command;
  command.program = {"python3", "train.py"};
  command.requirements = PythonRequirements{.file = {}, .lines = {"numpy # '$(false)' \"`false`\"", "", "--pre"}};
  EXPECT_EQ(job_of_command(command), clean_job(R"({"properties": {
    "nodeCount": 1,
    "requirements": ["numpy # '$(false)' \"`false`\"", "", "--pre"],
    "gyreSettings": {"program": ["python3", "train.py"]}}})"));
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
