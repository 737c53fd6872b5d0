#include "gyre/jobs/spec/internal/toolkit_readers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gyre::jobs::spec {

namespace {

constexpr std::string_view kScript = "pythonScriptFilePath";
constexpr std::string_view kInterpreter = "pythonInterpreterPath";
constexpr std::string_view kConfig = "configFilePath";

std::optional<int> read_process_count(ObjectReader& block) { return block.integer("processCount", 1, kMostProcesses); }

PythonScript read_python(ObjectReader& block) {
  PythonScript python;
  python.script_file_path = block.required_text(kScript);
  python.interpreter_path = block.text_or_nothing(kInterpreter);
  return python;
}

/// The words become one line of a shell, which is one argument.
void check_line_of(ObjectReader& block, const std::vector<std::string>& words, std::string_view name) {
  constexpr std::size_t kOfQuotes = 3;  // Around a word, and more than that for a quotation mark in it.
  std::size_t bytes = 0;
  for (const std::string& word : words) {
    bytes += word.size() + kOfQuotes * (1 + static_cast<std::size_t>(std::ranges::count(word, '\'')));
  }
  if (bytes <= kLongestArgument) return;
  block.error(name,
              fmt::format("has {} bytes as a line of a shell; {} are the limit, because Linux takes at most 131072 "
                          "in one argument: put the words into a script or another file",
                          bytes, kLongestArgument));
}

std::vector<std::string> words_of(const PythonScript& python) {
  return {python.interpreter_path.value_or(""), python.script_file_path};
}

std::vector<std::string> words_of(const std::variant<ConfigFile, PythonScript>& program) {
  if (const auto* script = std::get_if<PythonScript>(&program)) return words_of(*script);
  return {std::get<ConfigFile>(program).path};
}

/// Of the program, with which they become one line of a shell.
template <typename Program>
std::string read_args(ObjectReader& block, const Program& program, std::string_view name = "commandLineArgs") {
  std::string arguments = block.text(name).value_or("");
  std::vector<std::string> words = words_of(program);
  words.push_back(arguments);
  check_line_of(block, words, name);
  return arguments;
}

Toolkit read_custom(ObjectReader& block, int) { return CustomToolkitSettings{block.required_text("commandLine")}; }

Toolkit read_custom_mpi(ObjectReader& block, int) {
  CustomMpiSettings settings;
  settings.command_line = block.required_text("commandLine");
  check_line_of(block, {settings.command_line}, "commandLine");
  settings.process_count = read_process_count(block);
  return settings;
}

template <typename Settings>
Toolkit read_python_under_mpi(ObjectReader& block, int) {
  Settings settings;
  settings.python = read_python(block);
  settings.command_line_args = read_args(block, settings.python);
  settings.process_count = read_process_count(block);
  return settings;
}

std::variant<ConfigFile, PythonScript> read_config_file(ObjectReader& block) {
  if (block.text_or_nothing(kInterpreter))
    block.error(kInterpreter, fmt::format("belongs to {}; {} starts no Python", kScript, kConfig));
  return ConfigFile{block.required_text(kConfig)};
}

/// `configFilePath` or `pythonScriptFilePath`.
std::variant<ConfigFile, PythonScript> read_config_or_script(ObjectReader& block) {
  const bool config = block.text_or_nothing(kConfig).has_value();
  const bool script = block.text_or_nothing(kScript).has_value();
  if (config && script) block.error(kConfig, fmt::format("and {} exclude each other", kScript));
  if (!config && !script)
    block.missing(kConfig, fmt::format("is missing, and so is {}: one of them is needed", kScript));
  if (config && !script) return read_config_file(block);
  PythonScript python;
  python.script_file_path = block.text(kScript).value_or("");
  python.interpreter_path = block.text_or_nothing(kInterpreter);
  return python;
}

enum class CntkLanguage { kBrainScript, kPython };
constexpr Words<CntkLanguage, 2> kCntkLanguages = {
    {{"BrainScript", CntkLanguage::kBrainScript}, {"Python", CntkLanguage::kPython}}};

Toolkit read_cntk(ObjectReader& block, int) {
  CntkSettings settings;
  const std::optional<CntkLanguage> language = block.choice("languageType", kCntkLanguages);
  if (!language) {
    settings.program = read_config_or_script(block);
  } else if (*language == CntkLanguage::kBrainScript) {
    if (block.text_or_nothing(kScript)) block.error(kScript, "is for languageType Python; this is BrainScript");
    settings.program = read_config_file(block);
  } else {
    if (block.text_or_nothing(kConfig)) block.error(kConfig, "is for languageType BrainScript; this is Python");
    settings.program = read_python(block);
  }
  settings.command_line_args = read_args(block, settings.program);
  settings.process_count = read_process_count(block);
  return settings;
}

Toolkit read_caffe(ObjectReader& block, int) {
  CaffeSettings settings;
  settings.program = read_config_or_script(block);
  settings.command_line_args = read_args(block, settings.program);
  settings.process_count = read_process_count(block);
  return settings;
}

Toolkit read_caffe2(ObjectReader& block, int) {
  Caffe2Settings settings;
  settings.python = read_python(block);
  settings.command_line_args = read_args(block, settings.python);
  return settings;
}

constexpr Words<PyTorchBackend, 3> kPyTorchBackends = {
    {{"TCP", PyTorchBackend::kTcp}, {"Gloo", PyTorchBackend::kGloo}, {"MPI", PyTorchBackend::kMpi}}};

Toolkit read_pytorch(ObjectReader& block, int) {
  PyTorchSettings settings;
  settings.python = read_python(block);
  settings.command_line_args = read_args(block, settings.python);
  settings.process_count = read_process_count(block);
  settings.communication_backend = block.choice("communicationBackend", kPyTorchBackends);
  return settings;
}

Toolkit read_tensorflow(ObjectReader& block, int node_count) {
  constexpr std::string_view kMasterArgs = "masterCommandLineArgs";
  TensorFlowSettings settings;
  settings.python = read_python(block);
  if (block.reading().version == ApiVersion::k2017_09_01_preview && !block.has(kMasterArgs))
    block.warning(kMasterArgs, "is missing; version 2017-09-01-preview requires it");
  settings.master_command_line_args = read_args(block, settings.python, kMasterArgs);
  settings.worker_command_line_args = read_args(block, settings.python, "workerCommandLineArgs");
  settings.parameter_server_command_line_args = read_args(block, settings.python, "parameterServerCommandLineArgs");
  settings.worker_count = block.integer("workerCount", 1, kMostProcesses);
  settings.parameter_server_count = block.integer("parameterServerCount", 0, kMostNodes);
  if (settings.parameter_server_count.value_or(0) > node_count) {
    block.error("parameterServerCount", fmt::format("is {}, and nodeCount is {}: a node takes one parameter server",
                                                    *settings.parameter_server_count, node_count));
  }
  return settings;
}

/// A list of arguments, or a line for bash.
std::vector<std::string> read_program(ObjectReader& block) {
  const Value* program = block.value("program");
  if (program == nullptr || program->kind != Value::Kind::kList) {
    const std::string line = block.required_text("program");
    if (line.empty()) return {};
    check_line_of(block, {line}, "program");
    return {"/bin/bash", "-c", line};
  }
  std::vector<std::string> arguments = block.texts("program");
  if (arguments.empty() || arguments.front().empty()) block.error("program", "names no program");
  check_line_of(block, arguments, "program");
  return arguments;
}

Toolkit read_gyre(ObjectReader& block, int) {
  constexpr int kMostRestarts = 1'000;
  constexpr int kMostRetries = 100;
  GyreSettings settings;
  settings.program = read_program(block);
  settings.processes_per_node = block.integer("processesPerNode", 1, kMostProcessesPerNode).value_or(1);
  settings.restarts = block.integer("restarts", 0, kMostRestarts).value_or(0);
  settings.retries = block.integer("retries", 0, kMostRetries);
  settings.servers = block.integer("servers", 0, kMostServers).value_or(0);
  for (const std::string_view name : {"stage", "store"}) {
    if (block.has(name)) block.error(name, "is not supported by this version of Gyre yet");
  }
  return settings;
}

struct Block {
  std::string_view name;
  ApiVersion since;
  Toolkit (*read)(ObjectReader& block, int node_count);
};

constexpr std::array kBlocks = {
    Block{"customToolkitSettings", ApiVersion::k2017_09_01_preview, read_custom},
    Block{"customMpiSettings", ApiVersion::k2018_05_01, read_custom_mpi},
    Block{"horovodSettings", ApiVersion::k2018_05_01, read_python_under_mpi<HorovodSettings>},
    Block{"chainerSettings", ApiVersion::k2017_09_01_preview, read_python_under_mpi<ChainerSettings>},
    Block{"cntkSettings", ApiVersion::k2017_09_01_preview, read_cntk},
    Block{"caffeSettings", ApiVersion::k2017_09_01_preview, read_caffe},
    Block{"caffe2Settings", ApiVersion::k2017_09_01_preview, read_caffe2},
    Block{"pyTorchSettings", ApiVersion::k2018_03_01, read_pytorch},
    Block{"tensorFlowSettings", ApiVersion::k2017_09_01_preview, read_tensorflow},
    Block{"gyreSettings", ApiVersion::k2017_09_01_preview, read_gyre},
};

}  // namespace

std::optional<Toolkit> read_toolkit(ObjectReader& properties, int node_count) {
  std::optional<Toolkit> toolkit;
  std::vector<std::string_view> found;
  for (const Block& block : kBlocks) {
    auto reader = properties.object(block.name);
    if (!reader) continue;
    found.push_back(block.name);
    properties.came_with(block.since, block.name);
    toolkit = block.read(*reader, node_count);
    reader->finish();
    if (found.size() == 2) {
      const int first_line = properties.place_of(found.front()).line;
      properties.error(block.name,
                       fmt::format("is a second toolkit block; {} (line {}) is the first, and a job has one",
                                   found.front(), first_line));
    }
  }
  if (found.empty()) {
    std::vector<std::string_view> names;
    for (const Block& block : kBlocks) names.push_back(block.name);
    properties.incomplete(fmt::format("has no toolkit block: one of {} is needed", fmt::join(names, ", ")));
  }
  return toolkit;
}

}  // namespace gyre::jobs::spec
