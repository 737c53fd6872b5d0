#include "gyre/store/sources/sas.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>

#include "gyre/base/error.h"
#include "gyre/store/sources/text.h"

namespace gyre::store {

namespace {

/// Clocks of two machines differ a little.
constexpr std::chrono::seconds kSkew{60};

bool holds(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

std::optional<std::chrono::sys_seconds> time_field(const std::map<std::string, std::string>& fields, const char* name) {
  const auto found = fields.find(name);
  if (found == fields.end()) return std::nullopt;
  const auto time = parse_utc(found->second);
  if (!time) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the SAS is damaged: its '{}' is '{}', which is no time; is it cut off, or encoded twice?",
                            name, found->second));
  }
  return time;
}

}  // namespace

std::optional<std::chrono::sys_seconds> parse_utc(std::string_view text) {
  int year = 0;
  int month = 0;
  int day = 0;
  int hour = 0;
  int minute = 0;
  int second = 0;
  int used = 0;
  const std::string copy(text);
  if (std::sscanf(copy.c_str(), "%4d-%2d-%2d%n", &year, &month, &day, &used) != 3) return std::nullopt;
  const std::string rest = copy.substr(static_cast<std::size_t>(used));
  if (!rest.empty() && std::sscanf(rest.c_str(), "T%2d:%2d:%2d", &hour, &minute, &second) < 2) return std::nullopt;
  if (!rest.empty() && rest.back() != 'Z') return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || hour > 23 || minute > 59 || second > 60) return std::nullopt;
  return std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
         std::chrono::seconds(second);
}

std::string format_utc(std::chrono::sys_seconds time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count());
}

Sas Sas::parse(std::string_view text) {
  if (const auto url = split_url(text)) return parse(url->query);
  while (text.starts_with('?') || text.starts_with('&')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  if (text.find('=') == std::string_view::npos) {
    throw Error(ErrorCode::kInvalidArgument,
                "the SAS has no fields; if it is in a file, write @ before the file's name: @sas.txt");
  }
  std::map<std::string, std::string> fields;
  for (auto& [name, value] : parse_query(text)) fields[name] = value;
  for (const char* name : {"sv", "sig"}) {
    if (!fields.contains(name) || fields[name].empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the SAS lacks its field '{}'; quote the whole text: a shell cuts it at '&'", name));
    }
  }
  Sas sas;
  sas.query_ = text;
  sas.policy_ = fields.contains("si");
  if (!sas.policy_ && (!fields.contains("se") || !fields.contains("sp"))) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the SAS lacks its field '{}'", fields.contains("se") ? "sp" : "se"));
  }
  sas.permissions_ = fields["sp"];
  sas.services_ = fields["ss"];
  sas.resource_types_ = fields["srt"];
  sas.resource_ = fields["sr"];
  sas.protocols_ = fields["spr"];
  fields.erase("");
  sas.start_ = fields.contains("st") ? time_field(fields, "st") : std::nullopt;
  sas.expiry_ = time_field(fields, "se");
  return sas;
}

bool Sas::may_list() const {
  if (!resource_.empty() && resource_ != "c" && resource_ != "d") return false;
  if (!resource_types_.empty() && !holds(resource_types_, 'c')) return false;
  return policy_ || holds(permissions_, 'l');
}

namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kAuthentication, "the SAS " + why); }

}  // namespace

void Sas::check_use(std::chrono::sys_seconds now, bool encrypted) const {
  if (expiry_ && now >= *expiry_)
    refuse(fmt::format("expired at {} (it is {})", format_utc(*expiry_), format_utc(now)));
  if (start_ && now + kSkew < *start_) {
    refuse(fmt::format("is not valid before {} (it is {})", format_utc(*start_), format_utc(now)));
  }
  if (protocols_ == "https" && !encrypted) refuse("is for https alone (spr=https)");
  if (!services_.empty() && !holds(services_, 'b')) refuse(fmt::format("is not for blobs (ss={})", services_));
  if (!resource_types_.empty() && !holds(resource_types_, 'o'))
    refuse(fmt::format("is not for objects (srt={})", resource_types_));
}

void Sas::check_reading(std::chrono::sys_seconds now, bool list, bool encrypted) const {
  check_use(now, encrypted);
  if (policy_) return;
  if (!holds(permissions_, 'r')) refuse(fmt::format("does not allow reading (sp={} lacks r)", permissions_));
  if (list && !holds(permissions_, 'l')) refuse(fmt::format("does not allow listing (sp={} lacks l)", permissions_));
}

void Sas::check_writing(std::chrono::sys_seconds now, bool encrypted) const {
  check_use(now, encrypted);
  if (!policy_ && !holds(permissions_, 'w'))
    refuse(fmt::format("does not allow writing (sp={} lacks w)", permissions_));
}

}  // namespace gyre::store
