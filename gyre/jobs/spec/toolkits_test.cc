// Every toolkit block in every version: golden pairs of a file and the settings that it means.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/parse_test_support.h"
#include "gyre/jobs/spec/write.h"

namespace gyre::jobs::spec {
namespace {

using testing::Combine;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Values;
using testing::ValuesIn;

struct Golden {
  std::string name;
  ApiVersion since;
  std::string block;
  Toolkit expected;
  std::string tool_type;
};

constexpr auto kPreview = ApiVersion::k2017_09_01_preview;
constexpr auto kMarch = ApiVersion::k2018_03_01;
constexpr auto kMay = ApiVersion::k2018_05_01;

const PythonScript kPlainScript{"/train.py", std::nullopt};
const PythonScript kScriptWithPython{"$AZ_BATCHAI_INPUT_CODE/train.py", "/opt/python"};

std::vector<Golden> golden_blocks() {
  const std::string plain = R"({"pythonScriptFilePath": "/train.py"})";
  const std::string full = R"({"pythonScriptFilePath": "$AZ_BATCHAI_INPUT_CODE/train.py",
    "pythonInterpreterPath": "/opt/python", "commandLineArgs": "--x 1", "processCount": 2})";
  const std::string full_without_count = R"({"pythonScriptFilePath": "$AZ_BATCHAI_INPUT_CODE/train.py",
    "pythonInterpreterPath": "/opt/python", "commandLineArgs": "--x 1"})";
  return {
      {"custom", kPreview, R"("customToolkitSettings": {"commandLine": "a && b"})", CustomToolkitSettings{"a && b"},
       "custom"},
      {"mpi", kMay, R"("customMpiSettings": {"commandLine": "hostname"})", CustomMpiSettings{"hostname", {}}, "mpi"},
      {"mpi_full", kMay, R"("customMpiSettings": {"commandLine": "hostname", "processCount": 3})",
       CustomMpiSettings{"hostname", 3}, "mpi"},
      {"horovod", kMay, R"("horovodSettings": )" + plain, HorovodSettings{kPlainScript, "", {}}, "horovod"},
      {"horovod_full", kMay, R"("horovodSettings": )" + full, HorovodSettings{kScriptWithPython, "--x 1", 2},
       "horovod"},
      {"chainer", kPreview, R"("chainerSettings": )" + plain, ChainerSettings{kPlainScript, "", {}}, "chainer"},
      {"chainer_full", kPreview, R"("chainerSettings": )" + full, ChainerSettings{kScriptWithPython, "--x 1", 2},
       "chainer"},
      {"cntk_python_guessed", kPreview, R"("cntkSettings": )" + full, CntkSettings{kScriptWithPython, "--x 1", 2},
       "cntk"},
      {"cntk_python_said", kPreview,
       R"("cntkSettings": {"languageType": "python", "pythonScriptFilePath": "/train.py"})",
       CntkSettings{kPlainScript, "", {}}, "cntk"},
      {"cntk_brainscript_guessed", kPreview,
       R"("cntkSettings": {"configFilePath": "/c.cntk", "commandLineArgs": "RootDir=.", "processCount": 2})",
       CntkSettings{ConfigFile{"/c.cntk"}, "RootDir=.", 2}, "cntk"},
      {"cntk_brainscript_said", kPreview,
       R"("cntkSettings": {"languageType": "BrainScript", "configFilePath": "/c.cntk", "pythonScriptFilePath": ""})",
       CntkSettings{ConfigFile{"/c.cntk"}, "", {}}, "cntk"},
      {"caffe_config", kPreview, R"("caffeSettings": {"configFilePath": "/solver", "commandLineArgs": "-gpu all"})",
       CaffeSettings{ConfigFile{"/solver"}, "-gpu all", {}}, "caffe"},
      {"caffe_python", kPreview, R"("caffeSettings": )" + full, CaffeSettings{kScriptWithPython, "--x 1", 2}, "caffe"},
      {"caffe2", kPreview, R"("caffe2Settings": )" + full_without_count, Caffe2Settings{kScriptWithPython, "--x 1"},
       "caffe2"},
      {"pytorch", kMarch, R"("pyTorchSettings": )" + plain, PyTorchSettings{kPlainScript, "", {}, {}}, "pytorch"},
      {"pytorch_full", kMarch,
       R"("pyTorchSettings": {"pythonScriptFilePath": "/train.py", "commandLineArgs": "-e 2", "processCount": 4,
                              "communicationBackend": "MPI"})",
       PyTorchSettings{kPlainScript, "-e 2", 4, PyTorchBackend::kMpi}, "pytorch"},
      {"pytorch_tcp", kMarch,
       R"("pyTorchSettings": {"pythonScriptFilePath": "/train.py", "communicationBackend": "tcp"})",
       PyTorchSettings{kPlainScript, "", {}, PyTorchBackend::kTcp}, "pytorch"},
      {"tensorflow", kPreview,
       R"("tensorFlowSettings": {"pythonScriptFilePath": "/train.py", "masterCommandLineArgs": "--m"})",
       TensorFlowSettings{kPlainScript, "--m", "", "", {}, {}}, "tensorflow"},
      {"tensorflow_full", kPreview,
       R"("tensorFlowSettings": {"pythonScriptFilePath": "/train.py", "masterCommandLineArgs": "--m",
          "workerCommandLineArgs": "--w", "parameterServerCommandLineArgs": "--ps", "workerCount": 2,
          "parameterServerCount": 1})",
       TensorFlowSettings{kPlainScript, "--m", "--w", "--ps", 2, 1}, "tensorflow"},
      {"gyre_list", kPreview,
       R"("gyreSettings": {"program": ["python", "a b.py"], "processesPerNode": 4, "restarts": 1})",
       GyreSettings{{"python", "a b.py"}, 4, 1}, "gyre"},
      {"gyre_line", kPreview, R"("gyreSettings": {"program": "python train.py | tee log"})",
       GyreSettings{{"/bin/bash", "-c", "python train.py | tee log"}, 1, 0}, "gyre"},
      {"gyre_no_servers", kPreview, R"("gyreSettings": {"program": ["x"], "servers": 0})", GyreSettings{{"x"}}, "gyre"},
  };
}

class EveryBlock : public testing::TestWithParam<std::tuple<Golden, ApiVersion>> {};

TEST_P(EveryBlock, means_the_same_in_every_version) {
  const auto& [golden, version] = GetParam();
  const std::string schema = "https://example.org/schemas/" + std::string(version_name(version)) + "/job.json";
  std::vector<std::string> warnings;
  const JobSpec job = tolerated_job(R"({"$schema": ")" + schema + R"(", "properties": {"nodeCount": 2,
      "stdOutErrPathPrefix": "/logs", "inputDirectories": [{"id": "CODE", "path": "/code"}], )" +
                                        golden.block + "}}",
                                    warnings);
  EXPECT_EQ(job.toolkit, golden.expected);
  EXPECT_EQ(tool_type(job.toolkit), golden.tool_type);
  if (version >= golden.since) {
    EXPECT_EQ(warnings, std::vector<std::string>{});
  } else {
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("came with version " + std::string(version_name(golden.since)))));
  }
}

INSTANTIATE_TEST_SUITE_P(toolkits, EveryBlock, Combine(ValuesIn(golden_blocks()), Values(kPreview, kMarch, kMay)),
                         [](const auto& instance) {
                           std::string name = std::get<0>(instance.param).name + "_in_";
                           for (const char c : version_name(std::get<1>(instance.param))) name += c == '-' ? '_' : c;
                           return name;
                         });

struct Refused {
  std::string name;
  std::string block;
  std::string message;
};

class WrongBlock : public testing::TestWithParam<Refused> {};

TEST_P(WrongBlock, is_one_error) {
  const auto parsed = parse_job(job_file("", GetParam().block));
  EXPECT_FALSE(parsed.spec.has_value());
  EXPECT_THAT(problems_of(parsed), ElementsAre("1: /properties" + GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    toolkits, WrongBlock,
    testing::Values(
        Refused{"two_blocks",
                R"("caffe2Settings": {"pythonScriptFilePath": "/x"}, "cntkSettings": {"configFilePath": "/c"})",
                "/caffe2Settings is a second toolkit block; cntkSettings (line 1) is the first, and a job has one"},
        Refused{"no_block", R"("cntkSettings": null)",
                " has no toolkit block: one of customToolkitSettings, customMpiSettings, horovodSettings, "
                "chainerSettings, cntkSettings, caffeSettings, caffe2Settings, pyTorchSettings, tensorFlowSettings, "
                "gyreSettings is needed"},
        Refused{"custom_without_line", R"("customToolkitSettings": {})",
                "/customToolkitSettings/commandLine is missing"},
        Refused{"custom_with_empty_line", R"("customToolkitSettings": {"commandLine": ""})",
                "/customToolkitSettings/commandLine is empty"},
        Refused{"horovod_without_script", R"("horovodSettings": {"processCount": 2})",
                "/horovodSettings/pythonScriptFilePath is missing"},
        Refused{"no_processes", R"("customMpiSettings": {"commandLine": "x", "processCount": 0})",
                "/customMpiSettings/processCount must be a whole number from 1 to 100000, not 0"},
        Refused{"caffe_both", R"("caffeSettings": {"configFilePath": "/c", "pythonScriptFilePath": "/x"})",
                "/caffeSettings/configFilePath and pythonScriptFilePath exclude each other"},
        Refused{"caffe_neither", R"("caffeSettings": {})",
                "/caffeSettings/configFilePath is missing, and so is pythonScriptFilePath: one of them is needed"},
        Refused{"cntk_both", R"("cntkSettings": {"configFilePath": "/c", "pythonScriptFilePath": "/x"})",
                "/cntkSettings/configFilePath and pythonScriptFilePath exclude each other"},
        Refused{
            "cntk_script_in_brainscript",
            R"("cntkSettings": {"languageType": "BrainScript", "configFilePath": "/c", "pythonScriptFilePath": "/x"})",
            "/cntkSettings/pythonScriptFilePath is for languageType Python; this is BrainScript"},
        Refused{"cntk_interpreter_in_brainscript",
                R"("cntkSettings": {"configFilePath": "/c", "pythonInterpreterPath": "/python"})",
                "/cntkSettings/pythonInterpreterPath belongs to pythonScriptFilePath; configFilePath starts no Python"},
        Refused{"cntk_brainscript_without_file", R"("cntkSettings": {"languageType": "brainscript"})",
                "/cntkSettings/configFilePath is missing"},
        Refused{
            "unknown_backend", R"("pyTorchSettings": {"pythonScriptFilePath": "/x", "communicationBackend": "glo"})",
            "/pyTorchSettings/communicationBackend is \"glo\"; TCP, Gloo, MPI are possible (did you mean \"Gloo\"?)"},
        Refused{"more_parameter_servers_than_nodes",
                R"("tensorFlowSettings": {"pythonScriptFilePath": "/x", "parameterServerCount": 2})",
                "/tensorFlowSettings/parameterServerCount is 2, and nodeCount is 1: a node takes one parameter server"},
        Refused{"gyre_without_program", R"("gyreSettings": {"program": []})", "/gyreSettings/program names no program"},
        Refused{"gyre_negative_servers", R"("gyreSettings": {"program": ["x"], "servers": -1})",
                "/gyreSettings/servers must be a whole number from 0 to 1000, not -1"},
        Refused{"gyre_stage", R"("gyreSettings": {"program": ["x"], "stage": {}})",
                "/gyreSettings/stage is not supported by this version of Gyre yet"},
        Refused{"gyre_store", R"("gyreSettings": {"program": ["x"], "store": {}})",
                "/gyreSettings/store is not supported by this version of Gyre yet"}),
    [](const auto& instance) { return instance.param.name; });

TEST(toolkits, a_gyre_job_has_parameter_servers_in_addition_to_its_processes) {
  const auto file = [](const std::string& nodes, const std::string& settings) {
    return R"({"properties": {"stdOutErrPathPrefix": "/l", "nodeCount": )" + nodes +
           R"(, "gyreSettings": {"program": ["x"], )" + settings + "}}}";
  };
  const JobSpec job = clean_job(file("2", R"("processesPerNode": 2, "servers": 3)"));
  EXPECT_EQ(std::get<GyreSettings>(job.toolkit),
            (GyreSettings{.program = {"x"}, .processes_per_node = 2, .servers = 3}));
  EXPECT_EQ(process_count(job), 2 * 2 + 3);
  EXPECT_EQ(parse_job(nlohmann::json{{"properties", to_json(job, Secrets::kIncluded)}}.dump()).spec, job);
  EXPECT_THAT(problems_of(parse_job(file("1", R"("server": 1)"))),
              ElementsAre("1: warning: /properties/gyreSettings/server is not a known property (did you mean "
                          "\"servers\"?); it is ignored"));
}

// Missing and 0 are not the same: where it is missing, lost nodes lead to further attempts.
TEST(toolkits, a_gyre_job_says_how_many_further_attempts_it_has) {
  const auto file = [](const std::string& more) {
    return R"({"properties": {"stdOutErrPathPrefix": "/l", "nodeCount": 1, "gyreSettings": {"program": ["x"])" + more +
           "}}}";
  };
  EXPECT_EQ(std::get<GyreSettings>(clean_job(file("")).toolkit).retries, std::nullopt);
  for (const int retries : {0, 100}) {
    const JobSpec job = clean_job(file(fmt::format(R"(, "retries": {})", retries)));
    EXPECT_EQ(std::get<GyreSettings>(job.toolkit).retries, retries);
    EXPECT_EQ(parse_job(nlohmann::json{{"properties", to_json(job, Secrets::kIncluded)}}.dump()).spec, job);
  }
  EXPECT_THAT(problems_of(parse_job(file(R"(, "retries": 101)"))), ElementsAre(HasSubstr("gyreSettings/retries")));
}

TEST(toolkits, the_preview_required_the_masters_arguments) {
  ParseOptions strict;
  strict.version = ApiVersion::k2017_09_01_preview;
  strict.strict = true;
  const std::string file = job_file("", R"("tensorFlowSettings": {"pythonScriptFilePath": "/x"})");
  EXPECT_THAT(problems_of(parse_job(file, strict)), ElementsAre(HasSubstr("masterCommandLineArgs is missing")));
  strict.version = ApiVersion::k2018_05_01;
  EXPECT_THAT(problems_of(parse_job(file, strict)), ElementsAre());
}

}  // namespace
}  // namespace gyre::jobs::spec
