#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/jobs/spec/cluster_spec.h"
#include "gyre/jobs/spec/job_spec.h"

namespace gyre::jobs::spec {

/// The versions of Batch AI's interface, and of its files.
// NOLINTNEXTLINE(readability-identifier-naming): dates are easier to read with something between their numbers.
enum class ApiVersion { k2017_09_01_preview, k2018_03_01, k2018_05_01 };

/// "2018-05-01".
std::string_view version_name(ApiVersion version);

/// The version of that name, which is also the one of `api-version=` in a request. Nothing for another one.
std::optional<ApiVersion> version_named(std::string_view name);

enum class Format {
  kDetected,  ///< JSON where the first character is "{" or "[", else YAML.
  kJson,
  kYaml,
};

struct ParseOptions {
  Format format = Format::kDetected;
  bool strict = false;                ///< Warnings become errors.
  std::optional<ApiVersion> version;  ///< Where it is missing: the one of the file's `$schema`, else 2018-05-01.
  /// What stands for <AZURE_BATCHAI_STORAGE_ACCOUNT> and <AZURE_BATCHAI_STORAGE_KEY> in mount volumes, and the key for
  /// volumes of that account without credentials.
  std::optional<std::string> storage_account;
  std::optional<std::string> storage_key;
  /// What a command line says in place of a cluster file's `vmSize`, which may then be missing.
  std::optional<std::string> vm_size{};
};

enum class Severity { kWarning, kError };

/// Something wrong with one place of a file.
struct Problem {
  Severity severity = Severity::kError;
  std::string pointer;  ///< A JSON pointer: "/properties/nodeCount"; empty for the whole file.
  int line = 0;         ///< From 1; of the property, or of what should contain a missing one. 0 where there is none.
  /// What holds of that place: "must be a number, not text". Has a subject of its own where the pointer is empty. Never
  /// shows the value of a secret.
  std::string message;
};

/// "job.json:12: warning: /properties/nodeCuont is not …"; without the file where `file` is empty.
std::string describe(const Problem& problem, std::string_view file = {});

template <typename Spec>
struct Parsed {
  std::optional<Spec> spec;  ///< Missing when a problem is an error.
  ApiVersion version = ApiVersion::k2018_05_01;
  std::vector<Problem>
      problems;  ///< All of them at once, in the order of their lines; at most kMostProblems of each severity.
};

inline constexpr std::size_t kMostFileBytes = 4 << 20;
inline constexpr int kMostNesting = 32;
inline constexpr std::size_t kMostValues = 100'000;  ///< Objects, lists and scalars of one file, aliases included.
inline constexpr std::size_t kMostEntries = 1'000;   ///< Of one list or table: variables, directories, volumes.
inline constexpr std::size_t kMostArguments = 10'000;
/// Of one text: it may become an argument or a variable, for which Linux takes 131072 bytes with the names and words
/// that Gyre adds.
inline constexpr std::size_t kLongestArgument = 124 << 10;
/// Of a job's variables and secrets together: Linux takes about 2 MB of variables and arguments where a stack has 8 MB.
inline constexpr std::size_t kMostVariableBytes = 1 << 20;
inline constexpr std::size_t kMostProblems = 100;

/// Reads `job.json` or `cluster.json`, as text of JSON or YAML: `{"properties": {…}}`, or the properties alone. Never
/// throws for what the text says; the text may come from anybody. Pure: nothing that the text names is opened.
Parsed<JobSpec> parse_job(std::string_view text, const ParseOptions& options = {});
Parsed<ClusterSpec> parse_cluster(std::string_view text, const ParseOptions& options = {});

/// The spec, or Error(kInvalidArgument) with every error, one per line, `file` in front.
JobSpec job_or_throw(const Parsed<JobSpec>& parsed, std::string_view file);
ClusterSpec cluster_or_throw(const Parsed<ClusterSpec>& parsed, std::string_view file);

}  // namespace gyre::jobs::spec
