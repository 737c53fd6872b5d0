#include "gyre/jobs/orders/messages.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "gyre/base/error.h"
#include "gyre/jobs/orders/json_fields.h"

namespace gyre::jobs::orders {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostPayloadBytes = std::size_t{32} << 20;
constexpr std::size_t kMostReports = 1000;
constexpr std::size_t kMostNodes = 4096;
constexpr int kMostCores = 1 << 16;
constexpr std::int64_t kLongestGraceSeconds = 7LL * 24 * 3600;
constexpr std::int64_t kLongestLeaseMs = 24LL * 3600 * 1000;
constexpr std::int64_t kLargestWindow = std::int64_t{64} << 20;

Json json_of(const net::Message& message) {
  return parse_json(as_text(message.payload), kMostPayloadBytes, fmt::format("a message of type {}", message.type));
}

std::string attempt_of(const JsonFields& fields) {
  std::string attempt = fields.text("attempt");
  if (!is_plain_name(attempt)) fields.refuse("attempt", "is not a name");
  return attempt;
}

}  // namespace

std::string encode(const Registration& registration) {
  Json reports = Json::array();
  for (const NodeReport& report : registration.reports) reports.push_back(to_json(report));
  const Json json = {{"version", kProtocolVersion},
                     {"node", registration.node},
                     {"process", registration.process},
                     {"reports", reports},
                     {"address", registration.address},
                     {"cores", registration.cores},
                     {"gpus", registration.gpus},
                     {"asks_for_code", registration.asks_for_code},
                     {"carries_streams", registration.carries_streams},
                     {"carries_shells", registration.carries_shells}};
  return json.dump();
}

Registration registration_from(const net::Message& message) {
  const Json json = json_of(message);
  const JsonFields fields(json, "a registration");
  const std::int64_t version = fields.integer("version", 0, 1 << 20);
  if (version != kProtocolVersion) {
    throw Error(ErrorCode::kProtocol, fmt::format("an agent speaks version {} of the protocol, the service version {}; "
                                                  "run the same Gyre on every node",
                                                  version, kProtocolVersion));
  }
  Registration registration;
  registration.node = fields.text("node");
  if (!is_plain_name(registration.node)) fields.refuse("node", "is not a name");
  registration.process = fields.integer("process", 0, std::numeric_limits<std::int32_t>::max());
  registration.address = fields.text_or("address", "");
  if (!registration.address.empty() && !is_address(registration.address)) fields.refuse("address", "is not an address");
  registration.cores = static_cast<int>(fields.integer_or("cores", 1, kMostCores, 1));
  registration.gpus = static_cast<int>(fields.integer_or("gpus", 0, kMostCores, 0));
  registration.asks_for_code = fields.has("asks_for_code") && fields.boolean("asks_for_code");
  registration.carries_streams = fields.has("carries_streams") && fields.boolean("carries_streams");
  registration.carries_shells = fields.has("carries_shells") && fields.boolean("carries_shells");
  for (const Json& report : fields.array("reports", kMostReports)) {
    registration.reports.push_back(node_report_from_json(report));
  }
  return registration;
}

std::string encode(const RunCommand& command) {
  Json facts = Json::array();
  for (const NodeFacts& each : command.facts) facts.push_back(to_json(each));
  return Json{{"attempt", command.attempt}, {"facts", facts}}.dump();
}

RunCommand run_command_from(const net::Message& message) {
  const Json json = json_of(message);
  const JsonFields fields(json, "an order to run");
  RunCommand command;
  command.attempt = attempt_of(fields);
  for (const Json& facts : fields.array("facts", kMostNodes)) command.facts.push_back(node_facts_from_json(facts));
  return command;
}

std::string encode(const StopAttempt& command) {
  return Json{
      {"attempt", command.attempt}, {"reason", name_of(command.reason)}, {"grace_seconds", command.grace.count()}}
      .dump();
}

StopAttempt stop_attempt_from(const net::Message& message) {
  const Json json = json_of(message);
  const JsonFields fields(json, "an order to stop");
  StopAttempt command;
  command.attempt = attempt_of(fields);
  const auto reason = stop_reason_named(fields.text("reason"));
  if (!reason) fields.refuse("reason", "is not known");
  command.reason = *reason;
  command.grace = std::chrono::seconds(fields.integer("grace_seconds", 0, kLongestGraceSeconds));
  return command;
}

std::string encode_attempt(const std::string& attempt) { return Json{{"attempt", attempt}}.dump(); }

std::string attempt_from(const net::Message& message) {
  const Json json = json_of(message);
  return attempt_of(JsonFields(json, "a message about an attempt"));
}

std::string encode_number(std::uint64_t number) { return Json{{"number", number}}.dump(); }

std::uint64_t number_from(const net::Message& message) {
  const Json json = json_of(message);
  constexpr std::int64_t kHighest = std::int64_t{1} << 62U;
  return static_cast<std::uint64_t>(JsonFields(json, "a renewal").integer("number", 0, kHighest));
}

std::string encode(const Welcome& welcome) {
  Json json = {{"lease_ms", welcome.lease.count()}};
  if (welcome.log_window > 0) json["log_window"] = welcome.log_window;
  if (welcome.code_window > 0) json["code_window"] = welcome.code_window;
  return json.dump();
}

Welcome welcome_from(const net::Message& message) {
  const Json json = json_of(message);
  const JsonFields fields(json, "a welcome");
  return {.lease = std::chrono::milliseconds(fields.integer("lease_ms", 1, kLongestLeaseMs)),
          .log_window = static_cast<std::uint64_t>(fields.integer_or("log_window", 0, kLargestWindow, 0)),
          .code_window = static_cast<std::uint64_t>(fields.integer_or("code_window", 0, kLargestWindow, 0))};
}

NodeReport report_from(const net::Message& message) { return node_report_from_json(json_of(message)); }
WorkOrder order_from(const net::Message& message) { return work_order_from_json(json_of(message)); }

}  // namespace gyre::jobs::orders
