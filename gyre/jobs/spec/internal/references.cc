#include "gyre/jobs/spec/internal/references.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/cli/suggest.h"
#include "gyre/jobs/spec/variable_references.h"
#include "gyre/jobs/spec/variables.h"

namespace gyre::jobs::spec {

namespace {

constexpr std::string_view kBatch = "AZ_BATCH";
constexpr std::string_view kService = "AZ_BATCHAI_";
constexpr std::string_view kInput = "AZ_BATCHAI_INPUT_";
constexpr std::string_view kOutput = "AZ_BATCHAI_OUTPUT_";
constexpr std::string_view kPrevious = "AZ_BATCHAI_PREV_OUTPUT_";

class Check {
 public:
  Check(const JobSpec& job, ProblemLog& log) : log_(log) {
    for (const InputDirectory& input : job.input_directories) known_.push_back(std::string(kInput) + input.id);
    for (const OutputDirectory& output : job.output_directories) {
      known_.push_back(std::string(kOutput) + output.id);
      known_.push_back(std::string(kPrevious) + output.id);
    }
    for (const JobVariable& variable : job_variables()) {
      if (has_variable(variable, job)) known_.emplace_back(variable.name);
    }
    for (const EnvironmentVariable& variable : job.environment_variables) known_.push_back(variable.name);
    for (const SecretVariable& secret : job.secrets) known_.push_back(secret.name);
  }

  void walk(const Value& value, const Place& place) {
    if (value.kind == Value::Kind::kText) return check(value.text, place);
    for (std::size_t index = 0; index < value.items.size(); ++index)
      walk(value.items[index], {fmt::format("{}/{}", place.pointer, index), value.items[index].line});
    for (const Member& member : value.members) {
      const bool secret = same_without_case(member.name, "secrets") || same_without_case(member.name, "credentials");
      if (!secret) walk(member.value, {place.pointer + "/" + pointer_step(member.name), member.line});
    }
  }

 private:
  void check(std::string_view text, const Place& place) {
    walk_variable_references(text, [](std::string_view) {}, [&](std::string_view name) { check_name(name, place); });
  }

  void check_name(std::string_view name, const Place& place) {
    if (!name.starts_with(kBatch) || std::ranges::find(known_, name) != known_.end()) return;
    if (!log_.takes_warnings()) return;
    log_.warning(place, fmt::format("refers to {}, which this job does not have and which will be empty{}",
                                    pointer_step(name), hint(name)));
  }

  std::string hint(std::string_view name) const {
    for (const std::string_view directories : {kInput, kOutput}) {
      if (name.starts_with(directories)) return directory_hint(name, directories);
    }
    const auto other = std::ranges::find(job_variables(), name, &JobVariable::name);
    if (other != job_variables().end()) return fmt::format("; it is for {}", owner_name(other->whose));
    const auto meant = nearest_with_prefix(name, name.starts_with(kService) ? kService : kBatch);
    return meant ? fmt::format(" (did you mean {}?)", *meant) : "";
  }

  std::string directory_hint(std::string_view name, std::string_view prefix) const {
    constexpr std::size_t kMostListed = 10;
    if (const auto meant = nearest_with_prefix(name, prefix)) return fmt::format(" (did you mean {}?)", *meant);
    std::vector<std::string> names = known_with_prefix(prefix);
    if (names.empty()) return "; it declares no such directory";
    names.resize(std::min(names.size(), kMostListed));
    return fmt::format("; it has {}", fmt::join(names, ", "));
  }

  std::vector<std::string> known_with_prefix(std::string_view prefix) const {
    std::vector<std::string> names;
    std::ranges::copy_if(known_, std::back_inserter(names),
                         [&](const std::string& name) { return name.starts_with(prefix); });
    return names;
  }

  /// What all names begin with says nothing about which one was meant.
  std::optional<std::string> nearest_with_prefix(std::string_view name, std::string_view prefix) const {
    std::vector<std::string> rests = known_with_prefix(prefix);
    for (std::string& rest : rests) rest.erase(0, prefix.size());
    const auto meant = cli::nearest(name.substr(prefix.size()), rests);
    return meant ? std::optional(std::string(prefix) + *meant) : std::nullopt;
  }

  ProblemLog& log_;
  std::vector<std::string> known_;
};

}  // namespace

void check_references(const ObjectReader& properties, const JobSpec& job) {
  Check(job, properties.reading().log).walk(properties.whole(), properties.place());
}

}  // namespace gyre::jobs::spec
