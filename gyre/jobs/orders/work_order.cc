#include "gyre/jobs/orders/work_order.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/jobs/orders/json_fields.h"
#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/write.h"

namespace gyre::jobs::orders {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestName = 64;
constexpr std::size_t kLongestAccount = 255;
constexpr std::size_t kMostNodes = 4096;
constexpr std::size_t kMostPorts = 8192;
constexpr int kHighestPort = 65'535;
constexpr int kMostCores = 1 << 16;
constexpr std::size_t kMostDevices = 4096;
constexpr std::int64_t kMostLogBytes = std::int64_t{1} << 50;
constexpr std::size_t kKeyDigits = 64;

constexpr std::array<std::pair<Mpi, const char*>, 3> kMpiNames = {
    {{Mpi::kNone, "none"}, {Mpi::kOpenMpi, "openmpi"}, {Mpi::kHydra, "hydra"}}};

Json to_json(const NodePlace& node) {
  Json json = {{"id", node.id},
               {"address", node.address},
               {"cores", node.cores},
               {"gpus", node.gpus},
               {"agent", node.registered_as}};
  if (node.devices) json["devices"] = *node.devices;
  return json;
}

std::string plain_name(const JsonFields& fields, const char* name) {
  std::string text = fields.text(name);
  if (!is_plain_name(text)) fields.refuse(name, "must be 1 to 64 letters, digits, '-' and '_'");
  return text;
}

/// A path below some folder that it cannot leave.
std::string relative_path(const JsonFields& fields, const char* name) {
  std::string text = fields.text(name);
  const std::filesystem::path path(text);
  if (path.is_absolute() || std::ranges::find(path, "..") != path.end()) {
    fields.refuse(name, "must be a relative path without '..'");
  }
  return text;
}

std::string folder_or_nothing(const JsonFields& fields, const char* name) {
  std::string text = fields.text(name);
  const std::filesystem::path path(text);
  if (!text.empty() && (!path.is_absolute() || std::ranges::find(path, "..") != path.end())) {
    fields.refuse(name, "must be empty or an absolute path without '..'");
  }
  return text;
}

/// What can be an entry of CUDA_VISIBLE_DEVICES.
bool is_device(std::string_view name) {
  const auto fits = [](char c) { return c > ' ' && c <= '~' && c != ','; };
  return !name.empty() && name.size() <= kLongestName && std::ranges::all_of(name, fits);
}

NodePlace node_from_json(const Json& json) {
  const JsonFields fields(json, "a node of a work order");
  NodePlace node;
  node.id = plain_name(fields, "id");
  node.address = fields.text("address");
  if (!is_address(node.address)) fields.refuse("address", "is not an address or a host name");
  node.cores = static_cast<int>(fields.integer("cores", 1, kMostCores));
  node.gpus = static_cast<int>(fields.integer("gpus", 0, kMostCores));
  node.registered_as = fields.text_or("agent", "");
  if (!node.registered_as.empty() && !is_plain_name(node.registered_as)) fields.refuse("agent", "is not a name");
  if (!json.contains("devices")) return node;
  node.devices.emplace();
  for (const Json& device : fields.array("devices", kMostDevices)) {
    if (!device.is_string() || !is_device(device.get<std::string>())) fields.refuse("devices", "must be names of GPUs");
    node.devices->push_back(device.get<std::string>());
  }
  return node;
}

template <typename Spec>
Spec parsed_spec(const spec::Parsed<Spec>& parsed, const char* what) {
  if (parsed.spec) return *parsed.spec;
  std::string problem = "has no properties";
  for (const spec::Problem& each : parsed.problems) {
    if (each.severity == spec::Severity::kError) problem = spec::describe(each);
  }
  throw Error(ErrorCode::kCorruptData, fmt::format("the {} of a work order is not valid: {}", what, problem));
}

/// Of a key or a SHA-256.
bool are_digits(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == kKeyDigits && std::ranges::all_of(text, is_digit);
}

}  // namespace

std::string job_of(const std::string& attempt) { return attempt.substr(0, attempt.rfind('-')); }

bool is_plain_name(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
  };
  return !name.empty() && name.size() <= kLongestName && std::ranges::all_of(name, plain);
}

bool is_sha256(std::string_view text) { return are_digits(text); }

bool is_account_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("._-@+$\\").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= kLongestAccount && name.front() != '-' && std::ranges::all_of(name, fits);
}

bool is_address(std::string_view text) {
  const auto in_address = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
           c == '_' || c == ':';
  };
  return !text.empty() && text.size() <= 255 && std::ranges::all_of(text, in_address) && text.front() != '-';
}

bool is_numeric_address(const std::string& text) {
  std::array<std::byte, sizeof(in6_addr)> parsed;
  return ::inet_pton(AF_INET, text.c_str(), parsed.data()) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), parsed.data()) == 1;
}

Json to_json(const WorkOrder& order) {
  Json nodes = Json::array();
  for (const NodePlace& node : order.nodes) nodes.push_back(to_json(node));
  return {{"attempt", order.attempt},
          {"attempt_number", order.attempt_number},
          {"job_name", order.job_name},
          {"account", order.account},
          {"cluster_name", order.cluster_name},
          {"path_segment", order.path_segment},
          {"job", spec::to_json(order.job, spec::Secrets::kIncluded)},
          {"cluster", spec::to_json(order.cluster, spec::Secrets::kIncluded)},
          {"setup_path_suffix", order.setup_path_suffix},
          {"nodes", nodes},
          {"node", order.node},
          {"shared_folder", order.shared_folder},
          {"mount_root", order.mount_root},
          {"job_mount_root", order.job_mount_root},
          {"jobs_root", order.jobs_root},
          {"code_sha256", order.code_sha256},
          {"log_bytes", order.log_bytes},
          {"sends_logs", order.sends_logs},
          {"key", order.key}};
}

WorkOrder work_order_from_json(const Json& json) {
  const JsonFields fields(json, "a work order");
  WorkOrder order;
  order.attempt = plain_name(fields, "attempt");
  order.attempt_number = static_cast<int>(fields.integer("attempt_number", 1, 1 << 20));
  order.job_name = plain_name(fields, "job_name");
  order.account = fields.text_or("account", "");
  if (!order.account.empty() && !is_account_name(order.account)) fields.refuse("account", "is not an account's name");
  order.cluster_name = plain_name(fields, "cluster_name");
  order.path_segment = relative_path(fields, "path_segment");
  order.setup_path_suffix = relative_path(fields, "setup_path_suffix");
  for (const Json& node : fields.array("nodes", kMostNodes)) order.nodes.push_back(node_from_json(node));
  if (order.nodes.empty()) fields.refuse("nodes", "must name a node");
  order.node = static_cast<int>(fields.integer("node", 0, static_cast<std::int64_t>(order.nodes.size()) - 1));
  order.shared_folder = fields.text("shared_folder");
  if (!order.shared_folder.starts_with('/')) fields.refuse("shared_folder", "must be an absolute path");
  order.mount_root = folder_or_nothing(fields, "mount_root");
  order.job_mount_root = folder_or_nothing(fields, "job_mount_root");
  if (json.contains("jobs_root")) order.jobs_root = folder_or_nothing(fields, "jobs_root");
  order.code_sha256 = fields.text_or("code_sha256", "");
  if (!order.code_sha256.empty() && !is_sha256(order.code_sha256)) {
    fields.refuse("code_sha256", "must be 64 hexadecimal digits");
  }
  order.log_bytes = static_cast<std::uint64_t>(fields.integer_or("log_bytes", 0, kMostLogBytes, 0));
  order.sends_logs = fields.has("sends_logs") && fields.boolean("sends_logs");
  order.key = fields.text("key");
  if (!are_digits(order.key)) fields.refuse("key", "must be 64 hexadecimal digits");
  const spec::ParseOptions as_json = {.format = spec::Format::kJson,
                                      .strict = false,
                                      .version = spec::ApiVersion::k2018_05_01,
                                      .storage_account = std::nullopt,
                                      .storage_key = std::nullopt};
  order.job = parsed_spec(spec::parse_job(fields.at("job").dump(), as_json), "job");
  order.cluster = parsed_spec(spec::parse_cluster(fields.at("cluster").dump(), as_json), "cluster");
  return order;
}

Json to_json(const NodeFacts& facts) {
  const auto* name = std::ranges::find(kMpiNames, facts.mpi, &std::pair<Mpi, const char*>::first);
  return {{"mpi", name->second}, {"ports", facts.ports}, {"shell_port", facts.shell_port}};
}

NodeFacts node_facts_from_json(const Json& json) {
  const JsonFields fields(json, "a node's facts");
  NodeFacts facts;
  const std::string mpi = fields.text("mpi");
  const auto* kind = std::ranges::find(kMpiNames, std::string_view(mpi), &std::pair<Mpi, const char*>::second);
  if (kind == kMpiNames.end()) fields.refuse("mpi", "is not a kind of MPI that is known here");
  facts.mpi = kind->first;
  for (const Json& port : fields.array("ports", kMostPorts)) {
    if (!port.is_number_integer() || port < 1 || port > kHighestPort) fields.refuse("ports", "must be ports");
    facts.ports.push_back(port.get<int>());
  }
  facts.shell_port = static_cast<int>(fields.integer("shell_port", 0, kHighestPort));
  return facts;
}

}  // namespace gyre::jobs::orders
