#include "gyre/launch/spec.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/secret_key.h"
#include "gyre/launch/internal/rank_environment.h"

namespace gyre::launch {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostBytesWrittenOut = std::size_t{256} << 20;
constexpr int kMostRanks = 1 << 20;
constexpr std::int64_t kLongestSeconds = 7LL * 24 * 3600;

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} {}", field, why));
}

std::string text_of(const Json& value, const std::string& field) {
  if (!value.is_string()) refuse(field, "must be a string");
  const auto& text = value.get_ref<const std::string&>();
  if (text.find('\0') != std::string::npos) refuse(field, "holds a character NUL, which no argument or path can");
  return text;
}

std::int64_t number_of(const Json& value, const std::string& field, std::int64_t low, std::int64_t high) {
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high));
  const std::int64_t number = fits ? value.get<std::int64_t>() : -1;
  if (!fits || number < low || number > high) {
    refuse(field, fmt::format("must be a whole number from {} to {}", low, high));
  }
  return number;
}

std::vector<std::string> texts_of(const Json& value, const std::string& field) {
  if (!value.is_array()) refuse(field, "must be an array of strings");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < value.size(); ++i) texts.push_back(text_of(value[i], fmt::format("{}[{}]", field, i)));
  return texts;
}

/// The members of one object; each is asked for once, and what is never asked for does not exist.
class Members {
 public:
  Members(const Json& object, std::string field) : object_(object), field_(std::move(field)) {
    if (!object.is_object()) refuse(field_.empty() ? "the specification" : field_, "must be an object");
  }

  /// Null when it is not there.
  const Json* find(const char* name) {
    known_.insert(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  std::string path(const char* name) const { return field_.empty() ? name : fmt::format("{}.{}", field_, name); }

  void text(const char* name, std::string& target) {
    if (const Json* value = find(name)) target = text_of(*value, path(name));
  }
  template <typename Number>
  void number(const char* name, Number& target, std::int64_t low, std::int64_t high) {
    if (const Json* value = find(name)) target = static_cast<Number>(number_of(*value, path(name), low, high));
  }
  template <typename Number>
  void number(const char* name, std::optional<Number>& target, std::int64_t low, std::int64_t high) {
    if (const Json* value = find(name)) target = static_cast<Number>(number_of(*value, path(name), low, high));
  }
  template <typename Duration>
  void seconds(const char* name, Duration& target) {
    if (const Json* value = find(name))
      target = std::chrono::seconds(number_of(*value, path(name), 0, kLongestSeconds));
  }

  void refuse_others() const {
    for (const auto& [name, value] : object_.items()) {
      if (!known_.contains(name)) refuse(path(name.c_str()), "is not a field that is known here");
    }
  }

 private:
  const Json& object_;
  std::string field_;
  std::set<std::string> known_;
};

void read_environment(Members& members, RankSpec& rank) {
  const Json* object = members.find("environment");
  if (object == nullptr) return;
  if (!object->is_object()) refuse(members.path("environment"), "must be an object of strings");
  for (const auto& [name, value] : object->items()) {
    const std::string field = fmt::format("{}.{}", members.path("environment"), name);
    if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos) {
      refuse(field, "is not the name of a variable");
    }
    set_variable(rank.environment, name, text_of(value, field));
  }
}

void read_user(Members& rank_members, RankSpec& rank) {
  const Json* object = rank_members.find("user");
  if (object == nullptr) return;
  constexpr std::int64_t kHighest = std::numeric_limits<std::uint32_t>::max() - 1;  // The last one means: no change.
  Members members(*object, rank_members.path("user"));
  std::optional<uid_t> user;
  std::optional<gid_t> group;
  members.number("id", user, 0, kHighest);
  members.number("group", group, 0, kHighest);
  if (!user || !group) refuse(rank_members.path("user"), "needs an id and a group");
  UserId id{.user = *user, .group = *group, .groups = {}};
  if (const Json* groups = members.find("groups")) {
    if (!groups->is_array()) refuse(members.path("groups"), "must be an array of numbers");
    for (const Json& each : *groups) {
      id.groups.push_back(static_cast<gid_t>(number_of(each, members.path("groups"), 0, kHighest)));
    }
  }
  members.refuse_others();
  rank.user = std::move(id);
}

void read_inherited(Members& members, RankSpec& rank) {
  const Json* object = members.find("inherited");
  if (object == nullptr) return;
  if (!object->is_object()) refuse(members.path("inherited"), "must be an object of descriptors");
  for (const auto& [name, value] : object->items()) {
    const std::string field = fmt::format("{}.{}", members.path("inherited"), name);
    constexpr int kFirst = 3;
    rank.inherited.push_back({name, static_cast<int>(number_of(value, field, kFirst, 1 << 20))});
  }
}

std::size_t bytes_in(const RankSpec& rank) {
  std::size_t bytes = sizeof(RankSpec);
  for (const auto* texts : {&rank.command, &rank.environment, &rank.cgroups}) {
    for (const std::string& text : *texts) bytes += sizeof(std::string) + text.size();
  }
  return bytes;
}

void read_rank(const Json& object, const std::string& field, const std::vector<std::string>& environment,
               LaunchSpec& spec, std::size_t& bytes) {
  Members members(object, field);
  RankSpec rank;
  rank.environment = environment;
  if (const Json* command = members.find("command")) rank.command = texts_of(*command, members.path("command"));
  if (rank.command.empty() || rank.command.front().empty()) refuse(members.path("command"), "must name a program");
  read_environment(members, rank);
  members.text("folder", rank.folder);
  members.text("role", rank.role);
  members.number("index", rank.index, 0, kMostRanks - 1);
  members.number("role_size", rank.role_size, 1, kMostRanks);
  LaunchSpec::Files files;
  members.text("stdout", files.stdout_path);
  members.text("stderr", files.stderr_path);
  read_user(members, rank);
  if (const Json* cgroups = members.find("cgroups")) rank.cgroups = texts_of(*cgroups, members.path("cgroups"));
  read_inherited(members, rank);
  std::size_t count = 1;
  members.number("count", count, 1, kMostRanksPerHost);
  members.refuse_others();
  bytes += count * bytes_in(rank);
  if (spec.ranks.ranks.size() + count > kMostRanksPerHost || bytes > kMostBytesWrittenOut) {
    refuse("ranks", fmt::format("are too many: a host can have {}, of {} MB of arguments and variables",
                                kMostRanksPerHost, kMostBytesWrittenOut >> 20U));
  }
  for (std::size_t i = 0; i < count; ++i) {
    spec.ranks.ranks.push_back(rank);
    if (rank.index) *spec.ranks.ranks.back().index += static_cast<int>(i);
    spec.files.push_back(files);
  }
}

void read_part(const Json& object, LaunchSpec& spec) {
  Members members(object, "job");
  HostPart part;
  part.size = static_cast<int>(spec.ranks.ranks.size());
  members.number("nodes", part.nodes, 1, kMostRanks);
  members.number("node", part.node, 0, part.nodes - 1);
  members.number("size", part.size, 1, kMostRanks);
  int first_rank = 0;
  members.number("first_rank", first_rank, 0, part.size - 1);
  part.ranks.resize(spec.ranks.ranks.size());
  std::iota(part.ranks.begin(), part.ranks.end(), first_rank);
  members.text("rendezvous", part.rendezvous);
  if (!part.rendezvous.starts_with("tcp:")) refuse(members.path("rendezvous"), "must be tcp:HOST:PORT");
  std::string key;
  const WipedAtEnd wiped(key);
  members.text("key", key);
  if (!key.empty() && !(part.key = key_from_hex(key))) {
    refuse(members.path("key"), fmt::format("must be {} hexadecimal digits", 2 * SecretKey::kBytes));
  }
  members.refuse_others();
  spec.ranks.part = std::move(part);
}

void read_settings(Members& members, LaunchSpec& spec) {
  RankSetOptions& ranks = spec.ranks;
  members.text("master_address", ranks.master_address);
  members.number("master_port", ranks.master_port, 0, 65'535);
  members.text("run_id", ranks.run_id);
  members.number("restarts", ranks.restarts, 0, kMostRanks);
  members.number("max_restarts", ranks.max_restarts, 0, kMostRanks);
  std::string timeline;
  members.text("timeline", timeline);
  if (!timeline.empty()) ranks.timeline = timeline;
  std::string log_level;
  members.text("log_level", log_level);
  if (!log_level.empty()) ranks.log_level = log_level;
  members.text("metrics", spec.metrics);
  members.number("metrics_bytes", spec.metrics_bytes, 0, std::int64_t{1} << 40);
  members.number("metrics_first", spec.metrics_first, 0, std::int64_t{1} << 20);
  members.text("socket", spec.socket);
  members.seconds("grace_seconds", spec.grace);
  members.seconds("linger_seconds", spec.linger);
  members.number("keep_bytes", spec.keep_bytes, 1 << 16, std::int64_t{1} << 34);
}

}  // namespace

LaunchSpec parse_launch_spec(std::string_view json, const std::vector<std::string>& environment) {
  if (json.size() > kMostSpecBytes) {
    refuse("the specification", fmt::format("has {} bytes; {} are the most", json.size(), kMostSpecBytes));
  }
  const Json parsed = Json::parse(json, nullptr, false);
  if (parsed.is_discarded()) refuse("the specification", "is not valid JSON");
  Members members(parsed, "");
  LaunchSpec spec;
  const Json* ranks = members.find("ranks");
  if (ranks == nullptr || !ranks->is_array() || ranks->empty())
    refuse("ranks", "must be an array of at least one rank");
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < ranks->size(); ++i) {
    read_rank((*ranks)[i], fmt::format("ranks[{}]", i), environment, spec, bytes);
  }
  if (const Json* part = members.find("job")) read_part(*part, spec);
  read_settings(members, spec);
  members.refuse_others();
  return spec;
}

}  // namespace gyre::launch
