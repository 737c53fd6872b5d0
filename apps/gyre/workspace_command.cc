#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <system_error>

#include "apps/gyre/remote.h"
#include "apps/gyre/resource_commands.h"
#include "apps/gyre/run_command.h"
#include "gyre/base/account.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/base/reach.h"

// `gyre workspace …`, `gyre experiment …`, `gyre user …` and `gyre usage`.
namespace gyre::app {

namespace {

using Environment = std::vector<std::string>;
using jobs::client::below;
using jobs::client::Path;
using jobs::client::Session;

constexpr std::chrono::seconds kLongestDeletion{120};
constexpr std::int64_t kMostCores = 1'000'000'000;

struct Named {
  Remote remote{};
  std::string name{};
  std::string location{};
  std::string user{};
  std::string file{};
  std::string account{};
  bool yes = false;
  bool no_wait = false;
  bool administrator = false;
  bool trusted = false;
};

/// A verb with a positional NAME.
std::shared_ptr<Named> add_named(CLI::App& verb, const char* what, unsigned options) {
  auto named = std::make_shared<Named>();
  verb.add_option("NAME", named->name, what)->required();
  named->remote.add_options(verb, options);
  return named;
}

void add_deletion_options(CLI::App& verb, Named& named) {
  verb.add_flag("-y,--yes", named.yes, "Do not ask");
  verb.add_flag("--no-wait", named.no_wait, "Do not wait until it is gone");
}

std::string workspace_table(const std::vector<Json>& workspaces) {
  return table_of(workspaces, {column("NAME", "/name"), column("LOCATION", "/location"),
                               column("CORES", "/properties/quotas/cores"),
                               column("LOW-PRIORITY", "/properties/quotas/lowPriorityCores"),
                               time_column("CREATED", "/properties/creationTime")});
}

std::string experiment_table(const std::vector<Json>& experiments) {
  return table_of(experiments, {column("NAME", "/name"), column("STATE", "/properties/provisioningState"),
                                time_column("CREATED", "/properties/creationTime")});
}

int remove(const Named& named, const Environment& environment, const Path& path, const std::string& what) {
  Session session = named.remote.session(environment);
  if (!confirmed(fmt::format("Delete {} and everything in it?", what), named.yes)) return 1;
  session.remove(path);
  if (!named.no_wait) wait_until_gone(session, path, kLongestDeletion, what);
  return 0;
}

void add_workspace_owners(VerbGroup& group) {
  CLI::App* list = group.app().add_subcommand("owners", "List the users of a workspace");
  auto listed = add_named(*list, "Its name", Remote::kOutput);
  group.add(list, [listed](const Environment& environment) {
    Session session = listed->remote.session(environment);
    const auto owners = session.list({"workspaces", listed->name, "owners"});
    listed->remote.print(owners, [&] { return table_of(owners, {column("USER", "/name")}); });
    return 0;
  });
  for (const bool adds : {true, false}) {
    CLI::App* verb = adds ? group.app().add_subcommand("add-owner", "Give a user access to a workspace")
                          : group.app().add_subcommand("remove-owner", "Remove a user's access to a workspace");
    auto named = add_named(*verb, "Its name", Remote::kServerOnly);
    verb->add_option("USER", named->user, "The user's name")->required();
    group.add(verb, [named, adds](const Environment& environment) {
      Session session = named->remote.session(environment);
      const Path path = {"workspaces", named->name, "owners", named->user};
      adds ? static_cast<void>(session.put(path)) : session.remove(path);
      return 0;
    });
  }
}

/// A number of cores, or "none".
Json quota_of(const std::string& text, const char* option) {
  return text == "none" ? Json() : Json(parse_integer(text, option, 0, kMostCores));
}

void add_workspace_quota(VerbGroup& group) {
  CLI::App* verb =
      group.app().add_subcommand("quota", "Limit the cores of a workspace's running jobs (administrators)");
  auto named = add_named(*verb, "Its name", Remote::kOutput);
  auto cores = std::make_shared<std::string>();
  auto low_priority = std::make_shared<std::string>();
  verb->add_option("--cores", *cores, "On dedicated nodes; none: no limit")->type_name("N");
  verb->add_option("--low-priority-cores", *low_priority, "On low-priority nodes; none: no limit")->type_name("N");
  group.add(verb, [named, cores, low_priority](const Environment& environment) {
    if (cores->empty() && low_priority->empty()) throw UsageError("give --cores or --low-priority-cores");
    Session session = named->remote.session(environment);
    const Path path = {"workspaces", named->name};
    Json quotas = session.get(path).at("properties").value("quotas", Json::object());
    if (!cores->empty()) quotas["cores"] = quota_of(*cores, "--cores");
    if (!low_priority->empty()) quotas["lowPriorityCores"] = quota_of(*low_priority, "--low-priority-cores");
    const Json workspace = session.put(below(path, "quotas"), quotas);
    named->remote.print(workspace, [&] { return workspace_table({workspace}); });
    return 0;
  });
}

}  // namespace

std::unique_ptr<VerbGroup> workspace_verbs(CLI::App& app) {
  auto group = std::make_unique<VerbGroup>(
      app, "workspace", "Workspaces of a job server, and their users",
      "  gyre workspace create vision\n  gyre workspace add-owner vision ada\n  gyre workspace list");
  CLI::App* create = group->app().add_subcommand("create", "Create a workspace (administrators)");
  auto made = add_named(*create, "Its name: letters, digits, '-' and '_'", Remote::kOutput);
  create->add_option("-l,--location", made->location, "A note on its location")->type_name("TEXT");
  group->add(create, [made](const Environment& environment) {
    Session session = made->remote.session(environment);
    const Json workspace = session.put({"workspaces", made->name}, {{"location", made->location}});
    made->remote.print(workspace, [&] { return workspace_table({workspace}); });
    return 0;
  });
  CLI::App* list = group->app().add_subcommand("list", "List the workspaces that you can use");
  auto listed = std::make_shared<Named>();
  listed->remote.add_options(*list, Remote::kOutput);
  group->add(list, [listed](const Environment& environment) {
    const auto workspaces = listed->remote.session(environment).list({"workspaces"});
    listed->remote.print(workspaces, [&] { return workspace_table(workspaces); });
    return 0;
  });
  CLI::App* show = group->app().add_subcommand("show", "Show a workspace");
  auto shown = add_named(*show, "Its name", Remote::kOutput);
  group->add(show, [shown](const Environment& environment) {
    const Json workspace = shown->remote.session(environment).get({"workspaces", shown->name});
    shown->remote.print(workspace, [&] { return workspace_table({workspace}); });
    return 0;
  });
  CLI::App* deletion = group->app().add_subcommand("delete", "Delete a workspace and its experiments");
  auto deleted = add_named(*deletion, "Its name", Remote::kServerOnly);
  add_deletion_options(*deletion, *deleted);
  group->add(deletion, [deleted](const Environment& environment) {
    return remove(*deleted, environment, {"workspaces", deleted->name}, fmt::format("workspace '{}'", deleted->name));
  });
  add_workspace_owners(*group);
  add_workspace_quota(*group);
  return group;
}

std::unique_ptr<VerbGroup> experiment_verbs(CLI::App& app) {
  auto group = std::make_unique<VerbGroup>(
      app, "experiment", "Experiments: groups of jobs in a workspace",
      "  gyre experiment create baseline\n  gyre experiment list -w vision\n  gyre experiment delete baseline -y");
  CLI::App* create = group->app().add_subcommand("create", "Create an experiment");
  auto made = add_named(*create, "Its name: letters, digits, '-' and '_'", Remote::kWorkspace | Remote::kOutput);
  group->add(create, [made](const Environment& environment) {
    Session session = made->remote.session(environment);
    const std::string workspace = made->remote.workspace_in(environment);
    const Json experiment = session.put({"workspaces", workspace, "experiments", made->name});
    made->remote.print(experiment, [&] { return experiment_table({experiment}); });
    return 0;
  });
  CLI::App* list = group->app().add_subcommand("list", "List a workspace's experiments");
  auto listed = std::make_shared<Named>();
  listed->remote.add_options(*list);
  group->add(list, [listed](const Environment& environment) {
    const std::string workspace = listed->remote.workspace_in(environment);
    const auto experiments = listed->remote.session(environment).list({"workspaces", workspace, "experiments"});
    listed->remote.print(experiments, [&] { return experiment_table(experiments); });
    return 0;
  });
  CLI::App* show = group->app().add_subcommand("show", "Show an experiment");
  auto shown = add_named(*show, "Its name", Remote::kWorkspace | Remote::kOutput);
  group->add(show, [shown](const Environment& environment) {
    const std::string workspace = shown->remote.workspace_in(environment);
    const Json experiment =
        shown->remote.session(environment).get({"workspaces", workspace, "experiments", shown->name});
    shown->remote.print(experiment, [&] { return experiment_table({experiment}); });
    return 0;
  });
  CLI::App* deletion = group->app().add_subcommand("delete", "Delete an experiment and the records of its jobs");
  auto deleted = add_named(*deletion, "Its name", Remote::kWorkspace);
  add_deletion_options(*deletion, *deleted);
  group->add(deletion, [deleted](const Environment& environment) {
    const std::string workspace = deleted->remote.workspace_in(environment);
    return remove(*deleted, environment, {"workspaces", workspace, "experiments", deleted->name},
                  fmt::format("experiment '{}'", deleted->name));
  });
  return group;
}

namespace {

/// Before there is a token that would be lost with it; what is there already may be anything.
void check_file(const Named& named) {
  if (named.file.empty()) return;
  const std::filesystem::path file(named.file);
  std::error_code failure;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, failure))) return;
  try {
    if (std::filesystem::is_regular_file(file, failure) && jobs::client::read_server_file(file)) return;
  } catch (const Error&) {  // No file that names a server: refused below.
  }
  throw UsageError(
      fmt::format("--to {}: this is there already, and is no file that names a server; name a new file", named.file));
}

/// A token is shown once: into a file for its user alone, as verbs read it, or on stdout.
void hand_over(const Named& named, const Environment& environment, const Json& answer) {
  const std::string token = text_at(answer, "/token");
  if (named.file.empty()) return write_out(token + "\n");
  const auto connection = jobs::client::find_connection({named.remote.server, named.remote.token_file}, environment);
  const std::string here = jobs::client::server_text(connection.place);
  // On another machine the user needs the server's address there.
  const std::string remote = jobs::client::remote_of(here, {named.remote.server, ""}, environment);
  jobs::client::write_server_file(named.file, {.server = remote.empty() ? here : remote,
                                               .user = named.name,
                                               .token = token,
                                               .server_account = jobs::client::account_of_server(connection)});
  fmt::print(stderr, "{} is for {}: as ~/.config/gyre/server.json, or by --server FILE\n", named.file, named.name);
}

/// What a new user could not do, because of this machine: whether there is their account, and the way to the socket.
void warn_of_obstacles(const Named& named, const Environment& environment) {
  const auto connection = jobs::client::find_connection({named.remote.server, named.remote.token_file}, environment);
  const net::Endpoint& place = connection.place.endpoint;
  struct stat socket{};
  if (place.kind != net::Endpoint::Kind::kUnix || ::stat(place.host.c_str(), &socket) != 0) return;
  const std::string account = named.account.empty() ? named.name : named.account;
  const auto number = account_number(account);
  if (!number) {
    if (socket.st_uid != 0) return;
    fmt::print(stderr,
               "gyre user create: this machine has no account '{}', so {} cannot submit jobs: make it, or name another "
               "with `gyre user change {} --account ACCOUNT`\n",
               account, named.name, named.name);
    return;
  }
  const auto obstacle = obstacle_before(place.host, {.user = *number, .group = static_cast<gid_t>(-1), .groups = {}});
  if (!obstacle) return;
  fmt::print(stderr,
             "gyre user create: {}; start the server with --listen unix:/PATH where {} can go, or --listen HOST:PORT\n",
             explain(*obstacle, place.host, account), named.name);
}

void add_account_option(CLI::App& verb, Named& named) {
  verb.add_option("--account", named.account,
                  "Account of the server's machine that their jobs have, if root runs it (default: the same name)")
      ->type_name("ACCOUNT");
}

constexpr const char* kTrusted =
    "Can submit jobs to a server that is not root's, which runs all jobs as one account: can read and change what the "
    "other users' jobs, and the server, read and write";

void add_token_verbs(VerbGroup& group) {
  const char* const to = "Write a file for --server, instead of the token to stdout";
  CLI::App* create = group.app().add_subcommand("create", "Create a user, and show the token, once");
  auto made = add_named(*create, "Their name: letters, digits, '-' and '_'", Remote::kServerOnly);
  create->add_flag("--administrator", made->administrator, "Can use everything, and create workspaces and users");
  add_account_option(*create, *made);
  create->add_flag("--trusted", made->trusted, kTrusted);
  create->add_option("--to", made->file, to)->type_name("FILE");
  group.add(create, [made](const Environment& environment) {
    check_file(*made);
    Session session = made->remote.session(environment);
    const Json user = {
        {"isAdministrator", made->administrator}, {"account", made->account}, {"isTrusted", made->trusted}};
    hand_over(*made, environment, session.put({"users", made->name}, user));
    warn_of_obstacles(*made, environment);
    return 0;
  });
  CLI::App* change = group.app().add_subcommand("change", "Change a user's account, or whether they are trusted");
  auto changed = add_named(*change, "The user's name", Remote::kServerOnly);
  add_account_option(*change, *changed);
  change->add_flag("--trusted,!--untrusted", changed->trusted, kTrusted);
  group.add(change, [changed, change](const Environment& environment) {
    Json user = Json::object();
    if (change->count("--account") > 0) user["account"] = changed->account;
    if (change->count("--trusted") > 0) user["isTrusted"] = changed->trusted;
    if (user.empty()) throw UsageError("give --account, --trusted or --untrusted");
    changed->remote.session(environment).patch({"users", changed->name}, user);
    return 0;
  });
  CLI::App* renew = group.app().add_subcommand("renew-token", "Replace a user's token, and show the new one");
  auto renewed = add_named(*renew, "The user's name", Remote::kServerOnly);
  renew->add_option("--to", renewed->file, to)->type_name("FILE");
  group.add(renew, [renewed](const Environment& environment) {
    check_file(*renewed);
    Session session = renewed->remote.session(environment);
    hand_over(*renewed, environment, session.post({"users", renewed->name, "renewToken"}));
    return 0;
  });
}

}  // namespace

std::unique_ptr<VerbGroup> user_verbs(CLI::App& app) {
  auto group = std::make_unique<VerbGroup>(
      app, "user", "Users of a job server (administrators)",
      "  gyre user create ada --to ada.json\n  gyre workspace add-owner vision ada\n  gyre user delete ada -y");
  add_token_verbs(*group);
  CLI::App* list = group->app().add_subcommand("list", "List the users");
  auto listed = std::make_shared<Named>();
  listed->remote.add_options(*list, Remote::kOutput);
  group->add(list, [listed](const Environment& environment) {
    const auto users = listed->remote.session(environment).list({"users"});
    listed->remote.print(users, [&] {
      return table_of(users,
                      {column("NAME", "/name"),
                       {"ADMINISTRATOR",
                        [](const Json& user) { return text_at(user, "/isAdministrator") == "true" ? "yes" : "no"; }},
                       {"ACCOUNT", [](const Json& user) {
                          return text_at(user, text_at(user, "/account").empty() ? "/name" : "/account");
                        }}});
    });
    return 0;
  });
  CLI::App* deletion = group->app().add_subcommand("delete", "Delete a user and their token");
  auto deleted = add_named(*deletion, "The user's name", Remote::kServerOnly);
  deletion->add_flag("-y,--yes", deleted->yes, "Do not ask");
  group->add(deletion, [deleted](const Environment& environment) {
    Session session = deleted->remote.session(environment);
    if (!confirmed(fmt::format("Delete user '{}'?", deleted->name), deleted->yes)) return 1;
    session.remove({"users", deleted->name});
    return 0;
  });
  return group;
}

UsageCommand::UsageCommand(CLI::App& app)
    : verb_(app.add_subcommand("usage", "Show what a workspace uses of a job server")) {
  remote_.add_options(*verb_);
}

int UsageCommand::run(const std::vector<std::string>& environment) const {
  Session session = remote_.session(environment);
  const auto usages = session.list({"workspaces", remote_.workspace_in(environment), "usages"});
  remote_.print(usages, [&] {
    return table_of(usages,
                    {column("WHAT", "/name/value"), column("USED", "/currentValue"), column("LIMIT", "/limit")});
  });
  return 0;
}

}  // namespace gyre::app
