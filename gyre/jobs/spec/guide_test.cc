// The guide says of every property whether a file may leave it out, and what it then is; the parser must do just that.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/parse_test_support.h"
#include "gyre/jobs/spec/write.h"

namespace gyre::jobs::spec {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::array kVersions = {ApiVersion::k2018_03_01, ApiVersion::k2018_05_01};
constexpr std::string_view kNotThere = "–";
constexpr std::string_view kEither = "or ";

struct Row {
  std::string path;                  ///< "a.b[].c": the c of the entries of the list a.b.
  std::array<std::string, 2> cells;  ///< For kVersions.
  std::string fallback;
};

std::string without_ticks(std::string cell) {
  std::erase(cell, '`');
  return cell;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::size_t begin = 1;
  for (std::size_t end = line.find('|', begin); end != std::string::npos; end = line.find('|', begin)) {
    const std::string cell = line.substr(begin, end - begin);
    const std::size_t first = cell.find_first_not_of(' ');
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, cell.find_last_not_of(' ') + 1 - first));
    begin = end + 1;
  }
  return cells;
}

/// The rows of the first table below `heading`.
std::vector<Row> rows_below(const std::string& heading) {
  std::ifstream guide(GYRE_GUIDES "/from_batch_ai.md");
  std::vector<Row> rows;
  bool below = false;
  for (std::string line; std::getline(guide, line);) {
    if (line == heading) below = true;
    if (below && line.starts_with("Gyre's own block")) break;
    if (!below || !line.starts_with("| `")) continue;
    const auto cells = cells_of(line);
    if (cells.size() != 6) ADD_FAILURE() << line;
    const bool literal = cells[3].starts_with('`');
    rows.push_back({without_ticks(cells[0]),
                    {without_ticks(cells[1]), without_ticks(cells[2])},
                    literal ? without_ticks(cells[3]) : ""});
  }
  return rows;
}

/// A kind of file, with every property that it can have.
struct Kind {
  std::vector<Row> rows;
  Json sample;  ///< Properties that go together.
  /// Properties that exclude one of the sample's, by path, or a block in the place of the sample's.
  std::map<std::string, Json> alternatives;
  std::map<std::string, std::vector<std::string>> excluded;  ///< By path of an alternative: names beside it.
  /// Their entries are described elsewhere.
  std::set<std::string> elsewhere;
  std::function<Parsed<JobSpec>(const std::string&, const ParseOptions&)> parse_as_job;
  std::function<Parsed<ClusterSpec>(const std::string&, const ParseOptions&)> parse_as_cluster;
};

struct Outcome {
  std::vector<std::string> problems;
  std::string spec;  ///< Empty where there is an error.
};

template <typename Spec>
Outcome outcome_of(const Parsed<Spec>& parsed) {
  return {problems_of(parsed), parsed.spec ? to_json(*parsed.spec, Secrets::kIncluded).dump() : ""};
}

Outcome parse(const Kind& kind, const Json& properties, ApiVersion version) {
  ParseOptions options;
  options.version = version;
  const std::string text = Json{{"properties", properties}}.dump();
  if (kind.parse_as_job) return outcome_of(kind.parse_as_job(text, options));
  options.vm_size = "Standard_NC6";
  return outcome_of(kind.parse_as_cluster(text, options));
}

/// The object that has the property, and its name there. Null where the document has no such object.
std::pair<Json*, std::string> place_of(Json& document, std::string path) {
  if (path.ends_with("[]")) path.resize(path.size() - 2);
  Json* owner = &document;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.')) {
    std::string step = path.substr(0, dot);
    path.erase(0, dot + 1);
    const bool list = step.ends_with("[]");
    if (list) step.resize(step.size() - 2);
    if (!owner->contains(step)) return {nullptr, path};
    owner = list ? &(*owner)[step][0] : &(*owner)[step];
  }
  return {owner, path};
}

bool is_within(const std::string& path, const std::string& outer) {
  return path == outer || path.starts_with(outer + ".") || path.starts_with(outer + "[]");
}

void put(Json& document, const Kind& kind, const std::string& path) {
  const auto [owner, name] = place_of(document, path);
  ASSERT_NE(owner, nullptr) << path;
  if (const auto found = kind.excluded.find(path); found != kind.excluded.end()) {
    for (const std::string& other : found->second) owner->erase(other);
  }
  (*owner)[name] = kind.alternatives.at(path);
}

/// The sample, as it must be for this path to have a place in it, without what the version lacks otherwise.
Json document_for(const Kind& kind, const std::string& path, std::size_t version) {
  Json document = kind.sample;
  for (const auto& [alternative, value] : kind.alternatives) {
    if (is_within(path, alternative)) put(document, kind, alternative);
  }
  for (const Row& row : kind.rows) {
    // What is within a property that the version lacks goes with it, or stays with it.
    const auto is_of_it = [&](const Row& outer) {
      return outer.path != row.path && outer.cells.at(version) == kNotThere && is_within(row.path, outer.path);
    };
    if (row.cells.at(version) != kNotThere || is_within(path, row.path)) continue;
    if (std::ranges::any_of(kind.rows, is_of_it)) continue;
    const auto [owner, name] = place_of(document, row.path);
    if (owner != nullptr) owner->erase(name);
  }
  return document;
}

Json literal(const std::string& text) {
  const Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json(text) : value;
}

void check(const Kind& kind, const Row& row, std::size_t version) {
  SCOPED_TRACE(fmt::format("{} in version {}", row.path, version_name(kVersions.at(version))));
  const std::string& cell = row.cells.at(version);
  Json document = document_for(kind, row.path, version);
  const auto [owner, name] = place_of(document, row.path);
  ASSERT_TRUE(owner != nullptr && owner->contains(name)) << "the sample lacks it";
  const Outcome whole = parse(kind, document, kVersions.at(version));
  EXPECT_NE(whole.spec, "") << testing::PrintToString(whole.problems);
  if (cell == kNotThere) return;
  EXPECT_THAT(whole.problems, IsEmpty());
  Json with_fallback = document;
  owner->erase(name);
  const Outcome without = parse(kind, document, kVersions.at(version));
  if (cell == "optional") {
    EXPECT_NE(without.spec, "") << testing::PrintToString(without.problems);
    if (row.fallback.empty()) return;
    const auto [place, same] = place_of(with_fallback, row.path);
    (*place)[same] = literal(row.fallback);
    EXPECT_EQ(without.spec, parse(kind, with_fallback, kVersions.at(version)).spec);
    return;
  }
  EXPECT_EQ(without.spec, "") << "it may be missing";
  EXPECT_TRUE(cell == "required" || cell == "one block" || cell.starts_with(kEither)) << cell;
  ASSERT_FALSE(without.problems.empty());
  const std::string what = cell == "one block" ? "has no toolkit block" : name + " is missing";
  if (!cell.starts_with(kEither)) {
    EXPECT_THAT(testing::PrintToString(without.problems), HasSubstr(what));
  }
}

/// Every property of the document, as rows name them.
void collect(const Json& object, const std::string& outer, const std::set<std::string>& elsewhere,
             std::set<std::string>& paths) {
  for (const auto& [name, value] : object.items()) {
    const bool list = value.is_array();
    const std::string path = fmt::format("{}{}{}", outer, name, list ? "[]" : "");
    paths.insert(path);
    if (elsewhere.contains(path)) continue;
    const Json& inner = list ? value.at(0) : value;
    if (inner.is_object()) collect(inner, path + ".", elsewhere, paths);
  }
}

void check_all(const Kind& kind) {
  ASSERT_FALSE(kind.rows.empty());
  std::set<std::string> in_guide;
  for (const Row& row : kind.rows) {
    EXPECT_TRUE(in_guide.insert(row.path).second) << row.path << " stands there twice";
    for (std::size_t version = 0; version < kVersions.size(); ++version) check(kind, row, version);
  }
  std::set<std::string> in_samples;
  collect(kind.sample, "", kind.elsewhere, in_samples);
  for (const auto& [path, value] : kind.alternatives) {
    in_samples.insert(path);
    if (value.is_object() && !kind.elsewhere.contains(path)) collect(value, path + ".", kind.elsewhere, in_samples);
  }
  EXPECT_EQ(in_guide, in_samples);
}

const Json kReference = {{"sourceVault", {{"id", "/vault"}}}, {"secretUrl", "https://vault/secret"}};
const Json kVolumes = Json::parse(R"({
  "azureFileShares": [{"accountName": "acc", "azureFileUrl": "https://acc.file.core.windows.net/share",
    "credentials": {"accountKey": "k"}, "relativeMountPath": "files", "fileMode": "0700", "directoryMode": "0711"}],
  "azureBlobFileSystems": [{"accountName": "acc", "containerName": "box", "credentials": {"accountKey": "k"},
    "relativeMountPath": "blobs", "mountOptions": "-o x"}],
  "fileServers": [{"fileServer": {"id": "/servers/s"}, "sourceDirectory": "d", "relativeMountPath": "nfs",
    "mountOptions": "rw"}],
  "unmanagedFileSystems": [{"mountCommand": "mount x", "relativeMountPath": "other"}]})");

Json job_sample() {
  Json job = Json::parse(R"({
    "cluster": {"id": "c"}, "nodeCount": 2, "experimentName": "e", "location": "eastus", "priority": 5,
    "schedulingPriority": "high", "stdOutErrPathPrefix": "/logs",
    "inputDirectories": [{"id": "IN", "path": "/in"}],
    "outputDirectories": [{"id": "OUT", "pathPrefix": "/out", "pathSuffix": "s", "type": "model", "createNew": false}],
    "environmentVariables": [{"name": "A", "value": "1"}],
    "secrets": [{"name": "S", "value": "hush"}],
    "containerSettings": {"imageSourceRegistry": {"image": "i", "serverUrl": "reg.example",
      "credentials": {"username": "me", "password": "pw"}}, "shmSize": "1gb"},
    "jobPreparation": {"commandLine": "true"},
    "constraints": {"maxWallClockTime": "PT1H"},
    "customToolkitSettings": {"commandLine": "true"}})");
  job["mountVolumes"] = kVolumes;
  return job;
}

std::map<std::string, Json> toolkit_blocks() {
  const Json python = {{"pythonScriptFilePath", "/x.py"}, {"pythonInterpreterPath", "/py"}, {"commandLineArgs", "-a"}};
  const auto with = [](Json block, const Json& more) {
    block.update(more);
    return block;
  };
  const Json count = {{"processCount", 3}};
  return {{"customMpiSettings", with({{"commandLine", "true"}}, count)},
          {"horovodSettings", with(python, count)},
          {"chainerSettings", with(python, count)},
          {"cntkSettings", with(with(python, count), {{"languageType", "Python"}})},
          {"caffeSettings", with(python, count)},
          {"caffe2Settings", python},
          {"pyTorchSettings", with(with(python, count), {{"communicationBackend", "Gloo"}})},
          {"tensorFlowSettings", Json::parse(R"({"pythonScriptFilePath": "/x.py", "pythonInterpreterPath": "/py",
             "masterCommandLineArgs": "-m", "workerCommandLineArgs": "-w", "parameterServerCommandLineArgs": "-p",
             "workerCount": 2, "parameterServerCount": 1})")}};
}

Kind job_kind() {
  Kind kind;
  kind.rows = rows_below("### The properties of a job");
  kind.sample = job_sample();
  kind.alternatives = toolkit_blocks();
  for (const auto& [name, block] : kind.alternatives) kind.excluded[name] = {"customToolkitSettings"};
  const auto alternative = [&](const std::string& path, const Json& value, std::vector<std::string> excluded) {
    kind.alternatives[path] = value;
    kind.excluded[path] = std::move(excluded);
  };
  const std::string account = "mountVolumes.azure";
  alternative(account + "FileShares[].credentials.accountKeySecretReference", kReference, {"accountKey"});
  alternative(account + "BlobFileSystems[].credentials.accountKeySecretReference", kReference, {"accountKey"});
  alternative("secrets[].valueSecretReference", kReference, {"value"});
  alternative("containerSettings.imageSourceRegistry.credentials.passwordSecretReference", kReference, {"password"});
  const std::vector<std::string> of_python = {"pythonScriptFilePath", "pythonInterpreterPath", "languageType"};
  alternative("cntkSettings.configFilePath", "/x.cntk", of_python);
  alternative("caffeSettings.configFilePath", "/x.prototxt", of_python);
  kind.elsewhere = {account + "BlobFileSystems[].credentials.accountKeySecretReference"};
  kind.parse_as_job = parse_job;
  return kind;
}

Kind cluster_kind() {
  Kind kind;
  kind.rows = rows_below("### The properties of a cluster");
  kind.sample = Json::parse(R"({
    "vmSize": "S", "vmPriority": "lowpriority",
    "scaleSettings": {"manual": {"targetNodeCount": 2, "nodeDeallocationOption": "terminate"}},
    "virtualMachineConfiguration": {"imageReference": {"publisher": "p", "offer": "o", "sku": "s", "version": "1",
      "virtualMachineImageId": "/image"}},
    "nodeSetup": {
      "setupTask": {"commandLine": "true", "stdOutErrPathPrefix": "/logs", "runElevated": true,
        "environmentVariables": [{"name": "A", "value": "1"}], "secrets": [{"name": "S", "value": "hush"}]},
      "performanceCountersSettings": {"appInsightsReference": {"component": {"id": "/c"}, "instrumentationKey": "k"}}},
    "userAccountSettings": {"adminUserName": "me", "adminUserSshPublicKey": "ssh-rsa x", "adminUserPassword": "pw"},
    "subnet": {"id": "/net"}})");
  kind.sample["nodeSetup"]["mountVolumes"] = kVolumes;
  const std::string setup = "nodeSetup.";
  const std::string key = setup + "performanceCountersSettings.appInsightsReference.instrumentationKeySecretReference";
  kind.alternatives[key] = kReference;
  kind.excluded[key] = {"instrumentationKey"};
  kind.alternatives["scaleSettings.autoScale"] = {
      {"minimumNodeCount", 1}, {"maximumNodeCount", 4}, {"initialNodeCount", 2}};
  kind.excluded["scaleSettings.autoScale"] = {"manual"};
  kind.elsewhere = {setup + "mountVolumes", setup + "setupTask.secrets[]", setup + "setupTask.environmentVariables[]",
                    key};
  kind.parse_as_cluster = parse_cluster;
  return kind;
}

TEST(guide, says_of_each_property_of_a_job_whether_it_may_be_missing) { check_all(job_kind()); }

TEST(guide, says_of_each_property_of_a_cluster_whether_it_may_be_missing) { check_all(cluster_kind()); }

}  // namespace
}  // namespace gyre::jobs::spec
