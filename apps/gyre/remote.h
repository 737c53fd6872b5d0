#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gyre/cli/table.h"
#include "gyre/jobs/client/session.h"

namespace gyre::app {

using Json = nlohmann::json;

/// What the verbs that ask a job server have in common: the options --server, --token-file, -w and -o.
struct Remote {
  /// kShortOutput: -o without its long name.
  enum Options : unsigned { kServerOnly = 0, kWorkspace = 1, kOutput = 2, kShortOutput = 4 };

  void add_options(CLI::App& app, unsigned options = kWorkspace | kOutput);

  /// `patience`: for how long a server that is away is asked again; `meanwhile`: as SessionOptions::meanwhile. `say`:
  /// gets a line about a server that is away; stderr if it is empty.
  jobs::client::Session session(
      const std::vector<std::string>& environment, std::chrono::milliseconds patience = std::chrono::milliseconds(0),
      std::function<void()> meanwhile = [] {}, std::function<void(const std::string&)> say = nullptr) const;
  /// -w, else GYRE_WORKSPACE, else "default".
  std::string workspace_in(const std::vector<std::string>& environment) const;

  std::string server{};
  std::string token_file{};
  std::string workspace{};
  std::string output = "table";
  std::string verb = "gyre";  ///< How messages begin; add_options() sets it.

  /// As -o says: `json` itself, or what `table` makes of it.
  void print(const Json& json, const std::function<std::string()>& table) const;
};

/// For how long those who follow a job ask a server again that is away: across its restart.
inline constexpr std::chrono::minutes kPatience{5};
inline constexpr const char* kDefaultWorkspace = "default";
inline constexpr const char* kDefaultExperiment = "default";

/// A text, number or nothing of a resource: text_at(job, "/properties/executionState"). Empty where it is null or
/// missing.
std::string text_at(const Json& json, const std::string& pointer);
/// Of a table of resources.
struct Column {
  std::string heading{};
  std::function<std::string(const Json&)> value{};
};
/// What stands at `pointer`, as text_at().
Column column(std::string heading, std::string pointer);
/// The time there, as shown_time().
Column time_column(std::string heading, std::string pointer);
std::string table_of(const std::vector<Json>& resources, const std::vector<Column>& columns);

/// "2026-01-02 03:04:05" of an ISO 8601 time.
std::string shown_time(const std::string& iso_8601);
/// "2m10s" between two of them; up to now where `to` is empty; empty where `from` is.
std::string shown_duration(const std::string& from, const std::string& to);
/// As cli::fields_text(), as wide as stdout's terminal.
std::string shown_fields(const std::vector<std::pair<std::string, std::string>>& fields);

/// Asks on a terminal whether to go on, unless `yes`; where nobody is there to answer, UsageError names -y.
bool confirmed(const std::string& question, bool yes);

/// Writes text to stdout at once. Error(kIo) when it cannot be written, as on a full disk.
void write_out(std::string_view text);

/// Waits until the server no longer knows it; Error(kTimeout) after `longest`.
void wait_until_gone(jobs::client::Session& session, const jobs::client::Path& path, std::chrono::seconds longest,
                     const std::string& what);

}  // namespace gyre::app
