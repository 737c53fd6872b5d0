// A job file in YAML means what the same file in JSON means, whatever its scalars look like.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/parse_test_support.h"

namespace gyre::jobs::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kFile = R"(# A job.
$schema: https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2018-05-01/job.json
properties:
  nodeCount: 2
  stdOutErrPathPrefix: $AZ_BATCHAI_MOUNT_ROOT/logs
  environmentVariables:
    - {name: NUM_NODES, value: 2}
    - name: FLAG
      value: yes
    - name: EMPTY
      value: ""
  mountVolumes:
    azureFileShares:
      - accountName: a
        azureFileUrl: u
        relativeMountPath: external
        fileMode: 0755
  constraints: {maxWallClockTime: 1:30:00}
  jobPreparation:
    commandLine: |
      set -e
      pip install x
  horovodSettings: &horovod
    pythonScriptFilePath: /train.py
    processCount: 8
  chainerSettings: ~
)";

TEST(yaml, a_file_means_what_the_same_file_in_json_means) {
  const JobSpec job = clean_job(kFile);
  EXPECT_EQ(job, clean_job(R"({"properties": {
    "nodeCount": 2, "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/logs",
    "environmentVariables": [{"name": "NUM_NODES", "value": "2"}, {"name": "FLAG", "value": "yes"},
                             {"name": "EMPTY", "value": ""}],
    "mountVolumes": {"azureFileShares": [{"accountName": "a", "azureFileUrl": "u", "relativeMountPath": "external",
                                          "fileMode": "0755"}]},
    "constraints": {"maxWallClockTime": "PT1H30M"},
    "jobPreparation": {"commandLine": "set -e\npip install x\n"},
    "horovodSettings": {"pythonScriptFilePath": "/train.py", "processCount": 8}}})"));
  EXPECT_EQ(job.max_wall_clock_time, std::chrono::minutes(90));
}

TEST(yaml, lines_are_those_of_the_file) {
  const auto parsed = parse_job(
      "properties:\n  nodeCount: two\n\n  stdOutErrPathPrefix: /l\n  colour: red\n"
      "  customToolkitSettings:\n    commandLine:\n");
  EXPECT_THAT(problems_of(parsed),
              ElementsAre("2: /properties/nodeCount must be a whole number from 1 to 10000, not \"two\"",
                          "5: warning: /properties/colour is not a known property; it is ignored",
                          HasSubstr(": /properties/customToolkitSettings/commandLine is missing")));
}

TEST(yaml, aliases_are_followed) {
  const JobSpec job = clean_job(
      "properties:\n  nodeCount: &n 2\n  stdOutErrPathPrefix: &p /l\n  outputDirectories:\n  - {id: A, pathPrefix: "
      "*p}\n"
      "  customMpiSettings: {commandLine: x, processCount: *n}\n");
  EXPECT_EQ(job.output_directories, std::vector<OutputDirectory>({{"A", "/l", ""}}));
  EXPECT_EQ(process_count(job), 2);
}

TEST(yaml, what_only_yaml_has_and_a_job_needs_not_is_refused) {
  const auto problem = [](const std::string& text) {
    const auto problems = problems_of(parse_job(text));
    return problems.empty() ? "" : problems.front();
  };
  EXPECT_EQ(problem("a: 1\n---\nb: 2\n"), "the file has more than one document of YAML");
  EXPECT_EQ(problem("a: &a {x: 1}\nb:\n  <<: *a\n"), "3: merge keys (<<) are not supported: repeat the properties");
  EXPECT_EQ(problem("a: !python/object:os.system [ls]\n"), "1: tags of YAML are not supported here");
  EXPECT_EQ(problem("? [a]\n: b\n"), "1: a list or an object cannot be a property's name");
  EXPECT_EQ(problem("a: &a [*a]\n"), "1: an alias refers to something that contains it");
  EXPECT_THAT(problem("a: *b\n"), HasSubstr("1: the file is not valid YAML"));
  EXPECT_THAT(problem("a: [1\n"), HasSubstr("the file is not valid YAML"));
  EXPECT_THAT(problems_of(parse_job("a: 1\na: 2\n")), testing::Contains("2: /a is given twice"));
  EXPECT_EQ(problem("# nothing\n"), "the file is empty");
}

TEST(yaml, quotes_make_text) {
  std::vector<std::string> warnings;
  const JobSpec job = tolerated_job(
      "properties:\n  nodeCount: \"2\"\n  stdOutErrPathPrefix: '/l'\n"
      "  customToolkitSettings: {commandLine: \"null\"}\n",
      warnings);
  EXPECT_EQ(job.toolkit, Toolkit(CustomToolkitSettings{"null"}));
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("/properties/nodeCount must be a number, not text")));
}

}  // namespace
}  // namespace gyre::jobs::spec
