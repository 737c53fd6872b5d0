#include "gyre/jobs/service/internal/end_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/resources/json.h"

namespace gyre::jobs::service {

namespace {

using Json = nlohmann::json;
using Outcome = catalog::AttemptEnd::Outcome;

constexpr std::array<const char*, 3> kOutcomes = {"succeeded", "failed", "requeued"};
constexpr std::size_t kLongestMessage = 2'000;

Json to_json(const EndedAttempt& attempt) {
  Json nodes = Json::array();
  for (const catalog::AttemptNode& node : attempt.nodes) nodes.push_back({node.id, node.name});
  Json json = {{"job", attempt.job},
               {"attempt", attempt.number},
               {"nodes", nodes},
               {"started_us", attempt.started},
               {"ended_us", attempt.ended},
               {"outcome", kOutcomes.at(static_cast<std::size_t>(attempt.end.outcome))},
               {"reason", attempt.end.cause.reason},
               {"message", attempt.end.cause.message.substr(0, kLongestMessage)}};
  if (attempt.end.exit_code) json["exit_code"] = *attempt.end.exit_code;
  if (const auto& error = attempt.end.error) {
    json["error"] = {error->code, error->message.substr(0, kLongestMessage), resources::details_text(*error)};
  }
  return json;
}

EndedAttempt from_json(const Json& json) {
  EndedAttempt attempt{.job = json.at("job"),
                       .number = json.at("attempt"),
                       .started = json.at("started_us"),
                       .ended = json.at("ended_us")};
  for (const Json& node : json.at("nodes")) attempt.nodes.push_back({node.at(0), node.at(1)});
  const std::string outcome = json.at("outcome");
  const auto found = std::ranges::find(kOutcomes, outcome);
  if (found == kOutcomes.end()) throw Error(ErrorCode::kCorruptData, "an outcome that is none");
  attempt.end.outcome = static_cast<Outcome>(found - kOutcomes.begin());
  attempt.end.cause = {json.at("reason"), json.at("message")};
  if (json.contains("exit_code")) attempt.end.exit_code = json.at("exit_code").get<int>();
  if (json.contains("error")) {
    const Json& error = json.at("error");
    attempt.end.error = resources::ResourceError{error.at(0), error.at(1), resources::details_from_text(error.at(2))};
  }
  return attempt;
}

void read_from(const std::filesystem::path& file, std::vector<EndedAttempt>& all) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    try {
      all.push_back(from_json(Json::parse(line)));
    } catch (const std::exception&) {
      continue;  // The last line of a service that was killed, or of a full disk.
    }
  }
}

}  // namespace

void EndLog::append(const EndedAttempt& attempt) {
  try {
    std::error_code none;
    if (std::filesystem::file_size(file_, none) > kMostBytes && !none) std::filesystem::rename(file_, older());
    const UniqueFd file(::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) throw system_error(fmt::format("cannot write {}", file_.string()), errno);
    // A line of its own also behind one that a full disk has cut off.
    const std::string line = "\n" + to_json(attempt).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    write_all(file.get(), as_bytes(line), file_.string());
  } catch (const std::exception& error) {
    logger_->warn("the end of attempt {} of job {} is in the catalog only: {}", attempt.number, attempt.job,
                  error.what());
  }
}

std::vector<EndedAttempt> EndLog::read() const {
  std::vector<EndedAttempt> all;
  read_from(older(), all);
  read_from(file_, all);
  return all;
}

}  // namespace gyre::jobs::service
