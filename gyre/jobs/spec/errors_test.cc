// Whoever writes a job file must learn of all its defects at once, each with its place and what was probably meant.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"
#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/parse_test_support.h"

namespace gyre::jobs::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(errors, all_are_reported_at_once_with_pointer_line_and_nearest_name) {
  const auto parsed = parse_job(R"({
  "properties": {
    "nodeCuont": 2,
    "schedulingPriority": "hihg",
    "stdOutErrPathPrefix": "logs",
    "inputDirectories": [
      {"id": "A", "path": "/a"},
      {"id": "A"}
    ],
    "customToolkitSettings": {
      "comandLine": "x"
    },
    "constraints": {"maxWallClockTime": "soon"}
  }
})");
  EXPECT_FALSE(parsed.spec.has_value());
  EXPECT_THAT(
      problems_of(parsed),
      ElementsAre(
          "2: /properties/nodeCount is missing",
          "3: warning: /properties/nodeCuont is not a known property (did you mean \"nodeCount\"?); it is ignored",
          "4: /properties/schedulingPriority is \"hihg\"; low, normal, high are possible (did you mean \"high\"?)",
          "5: /properties/stdOutErrPathPrefix must be an absolute path, or begin with a variable such as "
          "$AZ_BATCHAI_MOUNT_ROOT",
          "8: /properties/inputDirectories/1/id is the id of line 7 too",
          "8: /properties/inputDirectories/1/path is missing",
          "10: /properties/customToolkitSettings/commandLine is missing",
          "11: warning: /properties/customToolkitSettings/comandLine is not a known property (did you mean "
          "\"commandLine\"?); it is ignored",
          "13: /properties/constraints/maxWallClockTime must be a duration above 0, such as P7D, PT1H30M or "
          "7.00:00:00"));
}

/// They were accepted, and the job's start failed with "Argument list too long".
TEST(errors, what_is_too_long_for_an_argument_or_an_environment_is_refused) {
  const auto first_of = [](const std::string& properties) {
    const auto parsed =
        parse_job(R"({"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/logs", )" + properties + "}}");
    const auto problems = problems_of(parsed);
    return problems.empty() ? std::string() : problems.front();
  };
  const auto custom = [](const std::string& line) {
    return R"("customToolkitSettings": {"commandLine": ")" + line + R"("})";
  };
  EXPECT_EQ(first_of(custom(std::string(kLongestArgument, 'x'))), "");
  EXPECT_THAT(first_of(custom(std::string(3'000'000, 'x'))),
              HasSubstr("/properties/customToolkitSettings/commandLine has 3000000 bytes; 126976 are the limit"));
  const auto program = [](const std::string& word) {
    return R"("gyreSettings": {"program": ["echo", ")" + word + R"(", ")" + word + R"("]})";
  };
  EXPECT_EQ(first_of(program(std::string(60'000, 'x'))), "");
  EXPECT_THAT(first_of(program(std::string(70'000, 'x'))), HasSubstr("program has 140013 bytes as a line of a shell"));
  EXPECT_THAT(first_of(program(std::string(20'000, '\''))), HasSubstr("as a line of a shell"));
  const auto script = [](const std::string& path, const std::string& arguments) {
    return R"("horovodSettings": {"pythonScriptFilePath": ")" + path + R"(", "commandLineArgs": ")" + arguments +
           R"("})";
  };
  EXPECT_EQ(first_of(script("train.py", std::string(120'000, 'x'))), "");
  EXPECT_THAT(first_of(script(std::string(70'000, 'x'), std::string(70'000, 'x'))),
              HasSubstr("/properties/horovodSettings/commandLineArgs has 140009 bytes as a line of a shell"));
  std::string variables;
  for (int i = 0; i < 12; ++i) {
    variables += (i == 0 ? "" : ", ") + (R"({"name": "V)" + std::to_string(i)) + R"(", "value": ")" +
                 std::string(100'000, 'v') + R"("})";
  }
  EXPECT_THAT(first_of(custom("true") + R"(, "environmentVariables": [)" + variables + "]"),
              HasSubstr("/properties/environmentVariables and secrets have 1200050 bytes; 1048576 are the limit"));
}

TEST(errors, strict_makes_errors_of_warnings) {
  ParseOptions strict;
  strict.strict = true;
  const std::string file = job_file(R"("colour": "red")");
  EXPECT_TRUE(parse_job(file).spec.has_value());
  const auto parsed = parse_job(file, strict);
  EXPECT_FALSE(parsed.spec.has_value());
  EXPECT_THAT(problems_of(parsed), ElementsAre("1: /properties/colour is not a known property; it is ignored"));
  EXPECT_TRUE(parse_job(job_file(""), strict).spec.has_value());
}

TEST(errors, a_spec_or_one_exception_with_every_error) {
  EXPECT_EQ(job_or_throw(parse_job(job_file("")), "job.json").node_count, 1);
  try {
    job_or_throw(parse_job(R"({"properties": {"oops": 1, "customToolkitSettings": {"commandLine": "x"}}})"),
                 "job.json");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(),
                 "job.json:1: /properties/nodeCount is missing\n"
                 "job.json:1: /properties/stdOutErrPathPrefix is missing");
  }
}

TEST(errors, a_wrong_kind_of_value_is_named) {
  const auto problems = [](const std::string& properties) { return problems_of(parse_job(job_file(properties))); };
  EXPECT_THAT(problems(R"("environmentVariables": {"A": "1"})"),
              ElementsAre("1: /properties/environmentVariables must be a list of objects, not an object"));
  EXPECT_THAT(problems(R"("environmentVariables": ["A=1"])"),
              ElementsAre("1: /properties/environmentVariables/0 must be an object, not text"));
  EXPECT_THAT(problems(R"("containerSettings": {"imageSourceRegistry": {"image": "i"}, "readBashrc": "yes"})"),
              ElementsAre("1: /properties/containerSettings/readBashrc must be true or false"));
  EXPECT_THAT(problems(R"("jobPreparation": "x")"),
              ElementsAre("1: /properties/jobPreparation must be an object, not text"));
  EXPECT_THAT(problems(R"("jobPreparation": {"commandLine": ["x"]})"),
              ElementsAre("1: /properties/jobPreparation/commandLine must be text, not a list"));
  EXPECT_THAT(problems(R"("constraints": {"maxWallClockTime": 7})"),
              ElementsAre(HasSubstr("must be text, not a number: put it in quotes"), HasSubstr("must be a duration")));
}

TEST(errors, requirements_that_no_node_can_use_are_refused) {
  const auto problems = [](const std::string& value) {
    return problems_of(parse_job(job_file("\"requirements\": " + value)));
  };
  EXPECT_THAT(problems(R"("sub/requirements.txt")"), testing::IsEmpty());
  EXPECT_THAT(problems(R"(["numpy==2.1", "# and", "-i https://host/simple"])"), testing::IsEmpty());
  EXPECT_THAT(problems(R"("/etc/passwd")"), ElementsAre(HasSubstr("/properties/requirements names a file of the job's "
                                                                  "code (--code), and must be a path in there")));
  EXPECT_THAT(problems(R"("../x")"), ElementsAre("1: /properties/requirements must not contain \"..\""));
  EXPECT_THAT(problems("7"), testing::SizeIs(1));
  EXPECT_THAT(problems("[]"), ElementsAre("1: /properties/requirements names nothing"));
  EXPECT_THAT(problems(R"(["a\nb"])"), ElementsAre("1: /properties/requirements has an entry of several lines"));
  EXPECT_THAT(
      problems(R"(["a", "-e ."])"),
      ElementsAre(HasSubstr("/properties/requirements cannot be used: line 2, '-e .', names files that nodes")));
  EXPECT_THAT(problems("[\"" + std::string(65'536, 'a') + "\"]"), ElementsAre(HasSubstr("65537 bytes; 65536 are")));
  EXPECT_THAT(problems(R"(["a"], "containerSettings": {"imageSourceRegistry": {"image": "i"}})"),
              ElementsAre(HasSubstr("/properties/requirements is for jobs without containerSettings")));
}

TEST(errors, a_build_of_an_image_is_one_of_two) {
  const auto problems = [](const std::string& container) {
    return problems_of(parse_job(job_file("\"containerSettings\": {" + container + "}")));
  };
  const std::string image = R"("imageSourceRegistry": {"image": "python:3"}, )";
  EXPECT_THAT(problems(R"("build": {"dockerfile": "docker/Dockerfile"})"), testing::IsEmpty());
  EXPECT_THAT(problems(image + R"("build": {"dockerfile": "Dockerfile"})"), testing::IsEmpty());
  EXPECT_THAT(problems(image + R"("build": {"requirements": ["numpy"]})"), testing::IsEmpty());
  EXPECT_THAT(
      problems(R"("build": {"requirements": "requirements.txt"})"),
      ElementsAre(HasSubstr("/properties/containerSettings/imageSourceRegistry is missing: it names the image")));
  EXPECT_THAT(problems(image + R"("build": {"requirements": ["-e ."]})"),
              ElementsAre(HasSubstr("/properties/containerSettings/build/requirements cannot be used: line 1")));
  EXPECT_THAT(problems(image + R"("build": {"requirements": ["a"], "dockerfile": "b"})"),
              ElementsAre(HasSubstr("/properties/containerSettings/build/dockerfile and requirements exclude")));
  EXPECT_THAT(problems(R"("build": {})"), ElementsAre("1: /properties/containerSettings/build/dockerfile is missing"));
  EXPECT_THAT(problems(R"("build": {"dockerfile": "/etc/x"})"),
              ElementsAre(HasSubstr("/properties/containerSettings/build/dockerfile names a file of the job's code")));
  EXPECT_THAT(problems(""), ElementsAre(HasSubstr("/properties/containerSettings/imageSourceRegistry is missing")));
}

TEST(errors, numbers_out_of_range_are_refused) {
  const auto problem = [](const std::string& number) {
    const auto parsed = parse_job(R"({"properties": {"nodeCount": )" + number +
                                  R"(, "stdOutErrPathPrefix": "/l", "customToolkitSettings": {"commandLine": "x"}}})");
    return parsed.problems.empty() ? "" : describe(parsed.problems.front());
  };
  const std::string start = "1: /properties/nodeCount must be a whole number from 1 to 10000, not ";
  EXPECT_EQ(problem(R"(2, "gpusPerNode": 0)"), "");
  EXPECT_EQ(problem(R"(2, "timeline": true)"), "");
  EXPECT_EQ(problem(R"(2, "timeline": false)"), "");
  EXPECT_EQ(problem(R"(2, "timeline": "yes")"), "1: /properties/timeline must be true or false");
  for (const char* gpus : {"-1", "1025", "\"all\"", "1.5"}) {
    EXPECT_EQ(problem(fmt::format(R"(2, "gpusPerNode": {})", gpus)),
              fmt::format("1: /properties/gpusPerNode must be a whole number from 0 to 1024, not {}", gpus));
  }
  EXPECT_EQ(problem(R"(2, "cpusPerNode": 2, "memoryPerNode": "512mb")"), "");
  EXPECT_EQ(problem(R"(2, "cpusPerNode": 0)"),
            "1: /properties/cpusPerNode must be a whole number from 1 to 4096, not 0");
  EXPECT_EQ(problem(R"(2, "memoryPerNode": "much")"),
            "1: /properties/memoryPerNode must be a size as docker takes it: 64m, 16gb");
  for (const char* memory : {"0g", "16", "16b", "1kb", "16383k", "15MB", "1048577g", "99999999999999999999999gb"}) {
    EXPECT_EQ(problem(fmt::format(R"(2, "memoryPerNode": "{}")", memory)),
              fmt::format("1: /properties/memoryPerNode is '{}'; it can be from 16m to 1048576g", memory));
  }
  EXPECT_EQ(problem(R"(2, "memoryPerNode": "16384K")"), "");
  EXPECT_EQ(problem(R"(2, "memoryPerNode": "1GB")"), "");
  EXPECT_EQ(problem("0"), start + "0");
  EXPECT_EQ(problem("-1"), start + "-1");
  EXPECT_EQ(problem("2.5"), start + "2.5");
  EXPECT_EQ(problem("2.0"), "");
  EXPECT_EQ(problem("4294967297"), start + "4294967297");
  EXPECT_EQ(problem("99999999999999999999999"), start + "99999999999999999999999");
  EXPECT_EQ(problem("true"), start + "\"true\"");
  EXPECT_EQ(problem("\"two\""), start + "\"two\"");
  EXPECT_EQ(problem("[1]"), start + "a list");
}

TEST(errors, names_of_variables_and_directories_are_checked) {
  const auto parsed = parse_job(job_file(R"(
    "environmentVariables": [{"name": "A=B", "value": ""}, {"name": "my-name", "value": ""},
                             {"name": "AZ_BATCHAI_NUM_GPUS", "value": "2"}],
    "inputDirectories": [{"id": "my data", "path": "/d"}, {"id": "my-data", "path": "/d"}],
    "outputDirectories": [{"id": "StdOutErr", "pathPrefix": "/o"}, {"id": "O", "pathPrefix": "/o", "pathSuffix": "../x"}])"));
  EXPECT_THAT(problems_of(parsed),
              ElementsAre(HasSubstr("environmentVariables/0/name cannot be a variable"),
                          HasSubstr("warning: /properties/environmentVariables/1/name is not a name that a shell"),
                          HasSubstr("warning: /properties/environmentVariables/2/name begins with AZ_BATCHAI_"),
                          HasSubstr("inputDirectories/0/id cannot be part of a variable's name"),
                          HasSubstr("warning: /properties/inputDirectories/1/id makes a variable"),
                          HasSubstr("outputDirectories/0/id is the name of the job's logs"),
                          HasSubstr("outputDirectories/1/pathSuffix must not contain \"..\"")));
}

TEST(errors, mount_paths_are_relative_and_differ) {
  const auto mount = [](const std::string& path) {
    return R"({"mountCommand": "m", "relativeMountPath": ")" + path + "\"}";
  };
  const auto parsed =
      parse_job(job_file(R"("mountVolumes": {"unmanagedFileSystems": [)" + mount("a") + "," + mount("a/") + "," +
                         mount("/b") + "," + mount("c/../../d") + "," + mount("./") + "]}"));
  EXPECT_THAT(problems_of(parsed),
              ElementsAre(HasSubstr("1/relativeMountPath is the mount path of line 1 too"),
                          HasSubstr("2/relativeMountPath must be a relative path"),
                          HasSubstr("3/relativeMountPath must not contain \"..\""), HasSubstr("names no directory"),
                          HasSubstr("4/relativeMountPath names no directory")));
}

TEST(errors, a_secret_has_one_source_and_never_shows) {
  const auto parsed = parse_job(job_file(R"("secrets": [
    {"name": "A"},
    {"name": "B", "value": "hush", "valueSecretReference": {"sourceVault": {"id": "v"}, "secretUrl": "u"}},
    {"name": "C", "value": ["hush"]},
    {"name": "D", "value": "$AZ_BATCHAI_hush"},
    {"name": "E", "valeu": "hush"}])"));
  for (const std::string& problem : problems_of(parsed)) EXPECT_THAT(problem, Not(HasSubstr("hush")));
  EXPECT_THAT(
      problems_of(parsed),
      ElementsAre("2: /properties/secrets/0/value is missing, and so is valueSecretReference: one of them is needed",
                  "3: /properties/secrets/1/value and valueSecretReference exclude each other",
                  "4: /properties/secrets/2/value must be text, not a list", HasSubstr("6: /properties/secrets/4"),
                  HasSubstr("6: warning: /properties/secrets/4/valeu")));
}

TEST(errors, references_to_variables_that_the_job_lacks_are_warnings) {
  const auto parsed = parse_job(job_file(
      R"("environmentVariables": [{"name": "T", "value": "$AZ_BATCHAI_OUTPUT_MODLE/x ${AZ_BATCHAI_MPI_HOSTFILE}"}],
"inputDirectories": [{"id": "DATA", "path": "$AZ_BATCHAI_MOUNT_ROOT/d"}],
"outputDirectories": [{"id": "MODEL", "pathPrefix": "/o"}],
"jobPreparation": {"commandLine": "ls $AZ_BATCHAI_INPUT_SCRIPTS $HOME $AZ_BATCHAI_INPUT_DATA $AZ_BATCHAI_OUTPUT_MODEL"})"));
  EXPECT_TRUE(parsed.spec.has_value());
  EXPECT_THAT(
      problems_of(parsed),
      ElementsAre(
          "1: warning: /properties/environmentVariables/0/value refers to AZ_BATCHAI_OUTPUT_MODLE, which this job "
          "does not have and which will be empty (did you mean AZ_BATCHAI_OUTPUT_MODEL?)",
          "1: warning: /properties/environmentVariables/0/value refers to AZ_BATCHAI_MPI_HOSTFILE, which this job "
          "does not have and which will be empty (did you mean AZ_BATCHAI_MPI_HOST_FILE?)",
          "4: warning: /properties/jobPreparation/commandLine refers to AZ_BATCHAI_INPUT_SCRIPTS, which this job does "
          "not "
          "have and which will be empty; it has AZ_BATCHAI_INPUT_DATA"));
}

// It exists, and is empty all the same where the toolkit has no tasks with numbers.
TEST(errors, a_variable_of_another_toolkit_is_a_warning_that_says_whose_it_is) {
  const auto parsed = parse_job(job_file(
      R"("environmentVariables": [{"name": "T", "value": "$AZ_BATCHAI_TASK_INDEX of $AZ_BATCHAI_NUM_NODES"}])"));
  EXPECT_THAT(problems_of(parsed),
              ElementsAre("1: warning: /properties/environmentVariables/0/value refers to AZ_BATCHAI_TASK_INDEX, which "
                          "this job does not have and which will be empty; it is for TensorFlow, Caffe2, PyTorch "
                          "without MPI",
                          HasSubstr("refers to AZ_BATCHAI_NUM_NODES, which this job does not have")));
}

TEST(errors, a_property_that_is_looked_at_twice_is_reported_once) {
  std::vector<std::string> warnings;
  tolerated_job(job_file("", R"("cntkSettings": {"configFilePath": 5})"), warnings);
  EXPECT_THAT(warnings,
              ElementsAre("1: warning: /properties/cntkSettings/configFilePath must be text, not a number: put "
                          "it in quotes"));
}

TEST(errors, the_schema_of_another_kind_of_file_is_a_warning) {
  const auto parsed =
      parse_job(R"({"$schema": "https://x/schemas/2018-05-01/cluster.json", "properties": {"nodeCount": 1,
    "stdOutErrPathPrefix": "/l", "customToolkitSettings": {"commandLine": "x"}}})");
  EXPECT_THAT(problems_of(parsed), ElementsAre("1: warning: /$schema is the schema cluster.json; a job is expected"));
  const auto unknown = parse_job(R"({"$schema": "https://x/schemas/2019-09-09/job.json", "properties": {"nodeCount": 1,
    "stdOutErrPathPrefix": "/l", "customToolkitSettings": {"commandLine": "x"}}})");
  EXPECT_THAT(problems_of(unknown), ElementsAre(HasSubstr("/$schema names none of the versions")));
}

TEST(errors, files_that_are_neither_json_nor_an_object_say_so) {
  const auto problem = [](const std::string& text, Format format = Format::kDetected) {
    ParseOptions options;
    options.format = format;
    const auto problems = problems_of(parse_job(text, options));
    return problems.size() == 1 ? problems.front() : "not one problem";
  };
  EXPECT_EQ(problem(""), "the file is empty");
  EXPECT_EQ(problem(" \n"), "the file is empty");
  EXPECT_EQ(problem("[]"), "1: the file must be an object, not a list");
  EXPECT_EQ(problem("hello"), "1: the file must be an object, not text");
  EXPECT_THAT(problem("{\n  \"properties\": {,}\n}"),
              HasSubstr("2: the file is not valid JSON at column 18: expected"));
  EXPECT_THAT(problem("{\"a\": 1}\n{\"b\": 2}"), HasSubstr("2: the file is not valid JSON"));
  EXPECT_THAT(problem("a: 1", Format::kJson), HasSubstr("1: the file is not valid JSON"));
  EXPECT_THAT(problem("{\"accountKey\": hush"), Not(HasSubstr("hush")));
  EXPECT_EQ(problem(R"({"properties": []})"), "1: /properties must be an object, not a list");
}

TEST(errors, a_property_given_twice_is_an_error) {
  EXPECT_THAT(problems_of(parse_job(job_file(R"("nodeCount": 2)"))),
              ElementsAre("1: /properties/nodeCount is given twice"));
  EXPECT_THAT(problems_of(parse_job(job_file(R"("NodeCount": 2)"))),
              ElementsAre("1: /properties/NodeCount is given twice: nodeCount is the same property"));
}

}  // namespace
}  // namespace gyre::jobs::spec
