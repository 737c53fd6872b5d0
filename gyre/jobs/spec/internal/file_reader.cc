#include "gyre/jobs/spec/internal/file_reader.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "gyre/jobs/spec/write.h"

namespace gyre::jobs::spec {

namespace {

constexpr std::array kVersions = {
    std::pair{std::string_view("2017-09-01-preview"), ApiVersion::k2017_09_01_preview},
    std::pair{std::string_view("2018-03-01"), ApiVersion::k2018_03_01},
    std::pair{std::string_view("2018-05-01"), ApiVersion::k2018_05_01},
};

/// The version that a schema's address names as one of its steps.
std::optional<ApiVersion> version_of_schema(std::string_view address) {
  for (const auto& [name, version] : kVersions) {
    if (address.find(fmt::format("/{}/", name)) != std::string_view::npos) return version;
  }
  return std::nullopt;
}

/// Says so where the schema is the one of another kind of file.
void check_schema_kind(ObjectReader& file, std::string_view address, std::string_view kind) {
  const std::size_t slash = address.rfind('/');
  const std::string_view name = address.substr(slash == std::string_view::npos ? 0 : slash + 1);
  const bool of_job = kind == "job" && (name == "cluster.json" || name == "nfs.json");
  const bool of_cluster = kind == "cluster" && (name == "job.json" || name == "nfs.json");
  if (of_job || of_cluster) file.warning("$schema", fmt::format("is the schema {}; a {} is expected", name, kind));
}

ApiVersion read_version(ObjectReader& file, const ParseOptions& options, std::string_view kind) {
  const std::optional<std::string> schema = file.text("$schema");
  if (schema) check_schema_kind(file, *schema, kind);
  if (options.version) return *options.version;
  if (!schema) return ApiVersion::k2018_05_01;
  const std::optional<ApiVersion> version = version_of_schema(*schema);
  if (!version) {
    file.warning("$schema",
                 "names none of the versions 2017-09-01-preview, 2018-03-01 and 2018-05-01; "
                 "the file is read as 2018-05-01");
  }
  return version.value_or(ApiVersion::k2018_05_01);
}

/// Whether the file is the properties themselves, without "properties" around them.
bool is_bare(const Value& root) {
  for (const Member& member : root.members) {
    if (same_without_case(member.name, "properties")) return false;
  }
  return root.kind == Value::Kind::kObject;
}

void read_root(const Value& root, const ParseOptions& options, std::string_view kind, FileReading& result,
               ProblemLog& log, const std::function<void(ObjectReader&)>& read) {
  Reading reading{options, ApiVersion::k2018_05_01, log};
  ObjectReader file(root, {"", root.line}, reading);
  reading.version = result.version = read_version(file, options, kind);
  if (is_bare(root)) {
    log.warning(file.place(), "the file has no \"properties\": it is read as if it were them");
    read(file);
    file.finish();
    return;
  }
  // What an answer of the service has besides; none of it describes the job or cluster.
  file.accept({"id", "name", "type", "location", "tags", "apiVersion", "etag", "description"});
  if (auto properties = file.required_object("properties")) {
    read(*properties);
    properties->finish();
  }
  file.finish();
}

// Its problems are moved out. NOLINTBEGIN(performance-unnecessary-value-param)
template <typename Spec>
Parsed<Spec> checked(FileReading file, std::optional<Spec> spec) {
  constexpr std::size_t kEnvelopeBytes = 64;
  Parsed<Spec> parsed{.spec = std::move(spec), .version = file.version, .problems = std::move(file.problems)};
  if (file.has_error) parsed.spec.reset();
  if (!parsed.spec) return parsed;
  const std::size_t bytes = to_json(*parsed.spec, Secrets::kIncluded).dump().size() + kEnvelopeBytes;
  if (bytes <= kMostFileBytes) return parsed;
  parsed.spec.reset();
  parsed.problems.push_back({Severity::kError, "", 0,
                             fmt::format("the file means {} bytes of JSON; {} are the limit", bytes, kMostFileBytes)});
  return parsed;
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace

Parsed<JobSpec> result_of(FileReading file, std::optional<JobSpec> spec) {
  return checked(std::move(file), std::move(spec));
}

Parsed<ClusterSpec> result_of(FileReading file, std::optional<ClusterSpec> spec) {
  return checked(std::move(file), std::move(spec));
}

std::string_view version_name(ApiVersion version) {
  for (const auto& [name, known] : kVersions) {
    if (known == version) return name;
  }
  return "unknown";
}

std::optional<ApiVersion> version_named(std::string_view name) {
  for (const auto& [known, version] : kVersions) {
    if (same_without_case(known, name)) return version;
  }
  return std::nullopt;
}

FileReading read_file(std::string_view text, const ParseOptions& options, std::string_view kind,
                      const std::function<void(ObjectReader& properties)>& read) {
  FileReading result;
  ProblemLog log(options.strict);
  try {
    std::vector<Problem> duplicates;
    const Value root = parse_document(text, options.format, duplicates);
    for (Problem& duplicate : duplicates) log.error({duplicate.pointer, duplicate.line}, std::move(duplicate.message));
    read_root(root, options, kind, result, log, read);
  } catch (const DocumentError& error) {
    log.error({"", error.line}, error.message);
  }
  result.has_error = log.has_error();
  result.problems = log.take();
  return result;
}

}  // namespace gyre::jobs::spec
