#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gyre/jobs/spec/values.h"

namespace gyre::jobs::spec {

enum class SchedulingPriority { kLow, kNormal, kHigh };

/// A name for a path that exists, or that the job expects: AZ_BATCHAI_INPUT_<id>.
struct InputDirectory {
  std::string id;
  std::string path;

  bool operator==(const InputDirectory&) const = default;
};

/// A directory made for the job (paths.h says where): AZ_BATCHAI_OUTPUT_<id>.
struct OutputDirectory {
  std::string id;
  std::string path_prefix;
  std::string path_suffix;  ///< May be empty; else relative, without "..".

  bool operator==(const OutputDirectory&) const = default;
};

struct RegistryCredentials {
  std::string username;
  SecretValue password;

  bool operator==(const RegistryCredentials&) const = default;
};

/// Our own: what the job's Python needs, as pip reads it. Exactly one of the two.
struct PythonRequirements {
  std::string file;                ///< In the job's code; relative, without "..".
  std::vector<std::string> lines;  ///< Or those of such a file.

  bool operator==(const PythonRequirements&) const = default;
};

/// Our own: an image that nodes build. Exactly one of the two.
struct ImageBuild {
  std::string dockerfile;                          ///< In the job's code; relative, without "..".
  std::optional<PythonRequirements> requirements;  ///< Or what is installed on top of ContainerSettings::image.

  bool operator==(const ImageBuild&) const = default;
};

struct ContainerSettings {
  std::string image;                      ///< Empty only where a Dockerfile says what it begins with.
  std::optional<std::string> server_url;  ///< Docker Hub where it is missing.
  std::optional<RegistryCredentials> credentials;
  std::optional<std::string> shm_size;  ///< As docker takes it: "16gb".
  /// Our own. Shell lines run in `bash -ic`, which reads the image's ~/.bashrc.
  bool read_bashrc = false;
  /// Our own, by the service: "sha256:…" of the contents that `image` named when the job was submitted.
  std::string digest{};
  std::optional<ImageBuild> build{};

  bool operator==(const ContainerSettings&) const = default;
};

// The toolkit blocks. A process_count that is missing means one process per node. Command lines and arguments are
// text for a shell, unless a comment says otherwise.

/// A shell line that runs once, on the master node; the other nodes are held and prepared.
struct CustomToolkitSettings {
  std::string command_line;

  bool operator==(const CustomToolkitSettings&) const = default;
};

/// A shell line that runs in every process, under mpirun.
struct CustomMpiSettings {
  std::string command_line;
  std::optional<int> process_count;

  bool operator==(const CustomMpiSettings&) const = default;
};

/// What the blocks that start a Python script have in common.
struct PythonScript {
  std::string script_file_path;
  std::optional<std::string> interpreter_path;  ///< "python" of the PATH where it is missing.

  bool operator==(const PythonScript&) const = default;
};

struct HorovodSettings {
  PythonScript python;
  std::string command_line_args;
  std::optional<int> process_count;

  bool operator==(const HorovodSettings&) const = default;
};

struct ChainerSettings {
  PythonScript python;
  std::string command_line_args;
  std::optional<int> process_count;

  bool operator==(const ChainerSettings&) const = default;
};

/// The path of a configuration file that the toolkit's own program reads.
struct ConfigFile {
  std::string path;

  bool operator==(const ConfigFile&) const = default;
};

struct CntkSettings {
  std::variant<ConfigFile, PythonScript> program;  ///< ConfigFile: BrainScript.
  std::string command_line_args;
  std::optional<int> process_count;

  bool operator==(const CntkSettings&) const = default;
};

struct CaffeSettings {
  std::variant<ConfigFile, PythonScript> program;  ///< ConfigFile: the solver of `caffe train`.
  std::string command_line_args;
  std::optional<int> process_count;

  bool operator==(const CaffeSettings&) const = default;
};

/// One process per node.
struct Caffe2Settings {
  PythonScript python;
  std::string command_line_args;

  bool operator==(const Caffe2Settings&) const = default;
};

enum class PyTorchBackend { kTcp, kGloo, kMpi };

struct PyTorchSettings {
  PythonScript python;
  std::string command_line_args;
  std::optional<int> process_count;
  std::optional<PyTorchBackend> communication_backend;

  bool operator==(const PyTorchSettings&) const = default;
};

struct TensorFlowSettings {
  PythonScript python;
  std::string master_command_line_args;
  std::string worker_command_line_args;
  std::string parameter_server_command_line_args;
  std::optional<int> worker_count;            ///< With the master, which is worker 0.
  std::optional<int> parameter_server_count;  ///< At most one per node.

  bool operator==(const TensorFlowSettings&) const = default;
};

/// Our own block: a program under `gyre run` on every node.
struct GyreSettings {
  /// Arguments, at least one; no shell reads them. $NAME and ${NAME} are replaced on the first node where NAME begins
  /// with "AZ_" or is a variable or a secret of the job; every other "$" stays, as does all of LINE in `bash -c LINE`.
  std::vector<std::string> program;
  int processes_per_node = 1;
  int restarts = 0;  ///< How often all ranks are started again after a rank has failed.
  /// How often another attempt is made after a failure that is not the job's own; missing: see RetryLimits.
  std::optional<int> retries{};
  int servers = 0;  ///< Parameter servers, which run in addition to the processes, in turn on the nodes.

  bool operator==(const GyreSettings&) const = default;
};

using Toolkit = std::variant<CustomToolkitSettings, CustomMpiSettings, HorovodSettings, ChainerSettings, CntkSettings,
                             CaffeSettings, Caffe2Settings, PyTorchSettings, TensorFlowSettings, GyreSettings>;

/// The id under which the service shows the files that `outputFiles` names.
inline constexpr std::string_view kKeptFiles = "work";
/// Where logs go that no file says a place for: nodes send them from there to the service.
inline constexpr std::string_view kLogsOnTheNode = "$AZ_BATCHAI_JOB_TEMP_DIR";
inline constexpr std::chrono::seconds kDefaultMaxWallClockTime = std::chrono::days(7);

/// A job as Batch AI's version 2018-05-01 describes it, whichever version or form its file had.
struct JobSpec {
  std::string cluster_id;                      ///< A name or a resource id; empty where the file leaves it open.
  std::optional<std::string> experiment_name;  ///< Of files before 2018-05-01 only.
  int node_count = 1;                          ///< All of them at once, or none.
  SchedulingPriority scheduling_priority = SchedulingPriority::kNormal;
  Toolkit toolkit;
  std::string std_out_err_path_prefix;
  std::vector<InputDirectory> input_directories;    ///< Ids are unique.
  std::vector<OutputDirectory> output_directories;  ///< Ids are unique.
  /// Patterns (file_pattern.h) of files in the folder where the first node's processes start, which are kept under the
  /// id kKeptFiles. No output directory has that id where there are any.
  std::vector<std::string> output_files;
  std::optional<int> gpus_per_node;            ///< Our own. Missing: the cluster's driver decides.
  std::optional<int> cpus_per_node;            ///< Our own: at most so many cores. Missing: all of the node's.
  std::optional<std::string> memory_per_node;  ///< Our own, as docker takes it: "16gb". Missing: all of the node's.
  MountVolumes mount_volumes;
  std::vector<EnvironmentVariable> environment_variables;  ///< In the file's order; a name occurs once, here or below.
  std::vector<SecretVariable> secrets;
  std::optional<ContainerSettings> container_settings;
  /// Our own: each node makes a virtual environment of them, once (ADR 139). Not with container_settings.
  std::optional<PythonRequirements> requirements;
  std::optional<std::string> job_preparation_command_line;  ///< A shell line, on every node before the job.
  std::chrono::seconds max_wall_clock_time = kDefaultMaxWallClockTime;

  bool operator==(const JobSpec&) const = default;
};

/// "image python:3", "image of Dockerfile".
std::string words_of_image(const ContainerSettings& container);

/// The files of the job's code that its requirements, and the build of its image, name.
std::vector<std::string> files_of_code(const JobSpec& job);

/// Whether files would be kept under an id that an output directory has.
bool kept_files_are_ambiguous(const JobSpec& job);

/// "custom", "mpi", "horovod", "chainer", "cntk", "caffe", "caffe2", "pytorch", "tensorflow", "gyre": `toolType`.
std::string_view tool_type(const Toolkit& toolkit);

/// How many processes the job's program has, defaults applied, parameter servers included; custom: 1.
int process_count(const JobSpec& job);

/// TensorFlow's counts, defaults applied: one worker per node, and one parameter server where there are several
/// workers.
int worker_count(const TensorFlowSettings& settings, int node_count);
int parameter_server_count(const TensorFlowSettings& settings, int node_count);

}  // namespace gyre::jobs::spec
