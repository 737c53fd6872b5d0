#include "apps/gyre/remote.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <utility>

#include "apps/gyre/run_command.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/process.h"
#include "gyre/cli/fields.h"
#include "gyre/cli/yaml.h"
#include "gyre/jobs/resources/json.h"

namespace gyre::app {

namespace {

constexpr int kGonePollMs = 100;

/// Seconds since 1970.
std::optional<std::int64_t> seconds_of(const std::string& iso_8601) {
  const auto time = jobs::resources::time_from_iso_8601(iso_8601);
  return time ? std::optional(*time / 1'000'000) : std::nullopt;
}

/// "gyre job wait"
std::string name_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : name_of(*app.get_parent()) + " " + app.get_name();
}

}  // namespace

void Remote::add_options(CLI::App& app, unsigned options) {
  verb = name_of(app);
  const auto add = [&](const char* names, std::string& value, const char* text, const char* type_name) {
    return app.add_option(names, value, text)->type_name(type_name);
  };
  if ((options & kWorkspace) != 0) {
    add("-w,--workspace", workspace, "The workspace (default: GYRE_WORKSPACE, else default)", "NAME");
  }
  if ((options & (kOutput | kShortOutput)) != 0) {
    app.add_option((options & kShortOutput) != 0 ? "-o" : "-o,--output", output, "table, json or yaml")
        ->check(CLI::IsMember({"table", "json", "yaml"}))
        ->type_name("FORM")
        ->capture_default_str();
  }
  add("--server", server, "unix:/PATH, https://HOST:PORT#FINGERPRINT, or a file with one of them (GYRE_SERVER)",
      "SERVER");
  add("--token-file", token_file, "A file with the token, readable only by you (else GYRE_TOKEN)", "FILE");
}

jobs::client::Session Remote::session(const std::vector<std::string>& environment, std::chrono::milliseconds patience,
                                      std::function<void()> meanwhile,
                                      std::function<void(const std::string&)> say) const {
  if (!say) say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  return jobs::client::Session(
      {.connection = jobs::client::find_connection({server, token_file}, environment),
       .patience = patience,
       .meanwhile = std::move(meanwhile),
       .say_away = [start = verb, say](const std::string& sentence) { say(start + ": " + sentence); }});
}

std::string Remote::workspace_in(const std::vector<std::string>& environment) const {
  if (!workspace.empty()) return workspace;
  const std::string variable = variable_of(environment, "GYRE_WORKSPACE");
  return variable.empty() ? kDefaultWorkspace : variable;
}

void Remote::print(const Json& json, const std::function<std::string()>& table) const {
  if (output == "json") {
    write_out(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else if (output == "yaml") {
    write_out(cli::to_yaml(json));
  } else {
    write_out(table());
  }
}

std::string text_at(const Json& json, const std::string& pointer) {
  const Json::json_pointer place(pointer);
  if (!json.contains(place)) return "";
  const Json& value = json.at(place);
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Column column(std::string heading, std::string pointer) {
  return {std::move(heading), [place = std::move(pointer)](const Json& resource) { return text_at(resource, place); }};
}

Column time_column(std::string heading, std::string pointer) {
  return {std::move(heading),
          [place = std::move(pointer)](const Json& resource) { return shown_time(text_at(resource, place)); }};
}

std::string table_of(const std::vector<Json>& resources, const std::vector<Column>& columns) {
  std::vector<std::string> headings;
  for (const Column& each : columns) headings.push_back(each.heading);
  cli::Table table(std::move(headings));
  for (const Json& resource : resources) {
    std::vector<std::string> cells;
    for (const Column& each : columns) cells.push_back(each.value(resource));
    table.add(std::move(cells));
  }
  return table.text();
}

std::string shown_time(const std::string& iso_8601) {
  const auto seconds = seconds_of(iso_8601);
  if (!seconds) return iso_8601;
  const std::time_t moment = *seconds;
  std::tm fields{};
  ::localtime_r(&moment, &fields);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &fields);
  return text.data();
}

std::string shown_duration(const std::string& from, const std::string& to) {
  const auto begin = seconds_of(from);
  const auto end = to.empty() ? std::optional<std::int64_t>(std::time(nullptr)) : seconds_of(to);
  if (!begin || !end) return "";
  return cli::shown_seconds(*end - *begin);
}

std::string shown_fields(const std::vector<std::pair<std::string, std::string>>& fields) {
  return cli::fields_text(fields, cli::terminal_columns(STDOUT_FILENO));
}

bool confirmed(const std::string& question, bool yes) {
  if (yes) return true;
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDERR_FILENO) == 0) {
    throw UsageError("cannot ask for confirmation without a terminal; give -y");
  }
  fmt::print(stderr, "{} [y/N] ", question);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

void write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw system_error("cannot write to stdout", errno);
  }
}

void wait_until_gone(jobs::client::Session& session, const jobs::client::Path& path, std::chrono::seconds longest,
                     const std::string& what) {
  const Deadline deadline = Deadline::after(longest);
  while (session.exists(path)) {
    if (deadline.passed()) {
      throw Error(ErrorCode::kTimeout,
                  fmt::format("{} is still being deleted after {} s; the server continues", what, longest.count()));
    }
    ::poll(nullptr, 0, kGonePollMs);
  }
}

}  // namespace gyre::app
