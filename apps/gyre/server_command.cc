#include "apps/gyre/server_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <memory>
#include <utility>

#include "apps/gyre/end_signals.h"
#include "apps/gyre/file_limit.h"
#include "apps/gyre/job_user.h"
#include "apps/gyre/program_start.h"
#include "apps/gyre/remote.h"
#include "apps/gyre/run_command.h"
#include "apps/gyre/server_limits.h"
#include "gyre/base/account.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/base/process.h"
#include "gyre/cli/number_check.h"
#include "gyre/cli/table.h"
#include "gyre/jobs/catalog/catalog.h"
#include "gyre/jobs/containers/container_runtime.h"
#include "gyre/jobs/http/audit_log.h"
#include "gyre/jobs/http/interface.h"
#include "gyre/jobs/service/backup.h"
#include "gyre/jobs/service/service.h"
#include "gyre/net/http/server.h"

namespace gyre::app {

namespace {

namespace fs = std::filesystem;
using jobs::client::ServerFile;
using jobs::service::Service;

constexpr char kBackupExplanation[] = R"(
The copy has users (hashes of their tokens), workspaces, clusters, jobs, events, and the secrets and uploaded code of jobs
that have not ended, as they were at one moment; only you can read it. Code of ended jobs, and files of jobs, are not in it.

To restore it: stop the server, put the copy in its folder as catalog.db, remove catalog.db-wal and catalog.db-shm, and
start the server. The folder can be a new one. The server first finds out what its nodes run, and starts nothing before:
jobs that still run go on, those that have ended since stay ended if the folder still knows, and the others begin again
once nothing of them runs.

Without --folder it is the server that commands of this user find, or else the one in the default folder.

Examples:
  gyre server backup /backup/gyre-monday.db
  gyre server --folder /srv/gyre backup /backup/gyre-monday.db)";

constexpr char kExplanation[] = R"(
Runs a team's jobs on clusters: virtual nodes of this machine, Slurm's nodes, or hosts that it reaches by ssh. If root
starts it, the jobs of each user run as that user's account (`gyre user create`), and root's own as --job-user. Else
all jobs run as the account that starts it: other users may look, and submit only if they are trusted with it (`gyre
user create NAME --trusted`). It keeps its state in its folder, which only one server at a time can use. It listens at
a Unix socket, /run/gyre/gyre.sock for root and else $XDG_RUNTIME_DIR/gyre/gyre.sock, and knows its users by their
accounts: commands on the same machine find it without options and need no token. For others it listens with --listen
HOST:PORT too, with TLS; they get its address, its fingerprint and their token in a file of `gyre user create --to
FILE`.

SIGTERM and Ctrl-C end it; jobs keep running, and the next server in the folder finds them again. After --lease seconds
without a server the nodes end their jobs, which are queued again.

Examples:
  gyre server
  gyre server --folder /srv/gyre --listen unix:/srv/gyre/gyre.sock --listen 0.0.0.0:7710
Then, as the same user:
  gyre cluster create pool --target 4 --mount external=/data/share
  gyre job submit job.json --follow)";

constexpr std::chrono::seconds kGrace{5};
/// Everybody may connect: whose request it is, the kernel says.
constexpr mode_t kDoorMode = 0666;

net::Endpoint place_to_listen(const std::string& text) {
  if (text.starts_with("unix:")) {
    net::Endpoint endpoint = net::parse_endpoint(text);
    if (endpoint.host.starts_with('@') || endpoint.host.starts_with('/')) return endpoint;
    return {net::Endpoint::Kind::kUnix, fs::absolute(endpoint.host).string(), 0};
  }
  if (text.find(':') == std::string::npos) {
    throw UsageError(
        fmt::format("--listen {0}: the port is missing; write {0}:7710 (port 0: a free one), or unix:PATH "
                    "for a socket",
                    text));
  }
  return net::parse_endpoint("tcp:" + text);
}

net::Endpoint listen_endpoint(const std::string& text) {
  try {
    return place_to_listen(text);
  } catch (const Error&) {
    throw UsageError(
        fmt::format("--listen {} is not a place to listen at; write HOST:PORT, as in 0.0.0.0:7710 ([ADDRESS]:PORT for "
                    "IPv6; port 0: a free one), or unix:PATH with a path of at most 107 characters",
                    text));
  }
}

/// The account's name, of which names of users may hold letters, digits, '-' and '_'.
std::string own_name() {
  std::string name = name_of_account(::geteuid());
  std::ranges::replace_if(name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_'; }, '-');
  return name.substr(0, 64);
}

/// The administrator that this server's own account is; made where there is none. Their verbs need no token.
std::string own_user(Service& service) {
  const std::string account = name_of_account(::geteuid());
  if (const auto known = service.user_with_account(account)) return known->name;
  const std::string name = own_name();
  const auto users = service.users();
  const bool taken = std::ranges::any_of(users, [&](const jobs::resources::User& user) { return user.name == name; });
  if (taken) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("user '{}' of this server has another account than the one that starts it, '{}'; delete "
                            "one of them",
                            name, account));
  }
  service.create_user({name, true, name == account ? "" : account});
  if (users.empty()) service.create_workspace({name, true}, {kDefaultWorkspace, ""});
  return name;
}

/// Written only where something has changed: a server that was killed must come back on a full disk too.
void keep_server_file(const fs::path& file, const ServerFile& content, spdlog::logger& log) {
  try {
    if (const auto before = jobs::client::read_server_file(file); before == content) return;
  } catch (const Error&) {
    log.info("{} cannot be read; it is written again", file.string());
  }
  try {
    jobs::client::write_server_file(file, content);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kResourceExhausted) throw;
    log.error(
        "{}; commands do not find this server through it: free some space and start the server again, or name it with "
        "--server {}",
        error.what(), content.server);
  }
}

/// The folder of a door that --listen does not name: others may enter root's, and put nothing there.
void make_door_folder(const fs::path& folder) {
  std::error_code failure;
  const bool is_new = fs::create_directories(folder, failure);
  if (is_new) fs::permissions(folder, ::geteuid() == 0 ? fs::perms(0755) : fs::perms::owner_all);
  struct stat status{};
  if (failure || ::stat(folder.c_str(), &status) != 0) {
    throw Error(ErrorCode::kIo, fmt::format("cannot make the folder {} for the server's socket{}; name another place "
                                            "with --listen unix:PATH",
                                            folder.string(), failure ? ": " + failure.message() : ""));
  }
  if (status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("others could put their own socket into {}; `chown {} {}` and `chmod go-w {}`, or name another "
                  "place with --listen unix:PATH",
                  folder.string(), name_of_account(::geteuid()), folder.string(), folder.string()));
}

/// Its nodes have the same environment.
void check_built_images(const std::vector<std::string>& environment) {
  try {
    jobs::containers::built_image_bytes(environment);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

void make_folder(const fs::path& folder) {
  std::error_code failure;
  const bool is_new = fs::create_directories(folder, failure);
  if (failure || !fs::is_directory(folder)) {
    throw UsageError(fmt::format("--folder {}: cannot make the folder: {}; name another one", folder.string(),
                                 failure ? failure.message() : "there is a file"));
  }
  // The users as whom root's jobs run must be able to reach their part of it.
  if (is_new) fs::permissions(folder, ::geteuid() == 0 ? fs::perms(0711) : fs::perms::owner_all);
}

/// As clients on other hosts write it: this host's name where the server listens at all of its addresses.
std::string text_of(net::Endpoint endpoint, const std::string& fingerprint) {
  if (endpoint.kind == net::Endpoint::Kind::kTcp && (endpoint.host == "0.0.0.0" || endpoint.host == "::")) {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) == 0) endpoint.host = name.data();
  }
  return jobs::client::server_text({endpoint, endpoint.kind == net::Endpoint::Kind::kTcp ? fingerprint : ""});
}

/// What leaves files for the catalog, node programs, and the files that connections read.
std::size_t most_connections(std::size_t files, const Logger& logger) {
  constexpr std::size_t kOwnFiles = 96;
  constexpr std::size_t kFilesPerConnection = 2;  // A follower has the file, too.
  constexpr std::size_t kFewFiles = 1'024;
  const std::size_t most = std::max<std::size_t>(16, (files - std::min(files, kOwnFiles)) / kFilesPerConnection);
  if (files < kFewFiles) {
    logger->warn(
        "the system lets this server open {} files (ulimit -n), enough for {} connections at once; others wait "
        "until some have ended",
        files, most);
  }
  return most;
}

std::uint64_t parse_size(const std::string& text, const char* option) {
  try {
    return parse_bytes(text, option);
  } catch (const Error&) {
    throw UsageError(fmt::format("{}: '{}' is not a number of bytes, as in 500MB or 20GB", option, text));
  }
}

std::unique_ptr<net::http::Server> listen(net::http::ServerOptions options, const std::shared_ptr<Service>& service) {
  try {
    return std::make_unique<net::http::Server>(std::move(options), jobs::http::make_router(service));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIo) throw;
    throw Error(error.code(),
                fmt::format("{}; choose another place with --listen (127.0.0.1:0 finds a free port)", error.what()));
  }
}

}  // namespace

ServerCommand::ServerCommand(CLI::App& app)
    : verb_(app.add_subcommand("server", "Run a job server for a team, until it is ended")) {
  verb_
      ->add_option("--folder", folder_,
                   "Folder of its state (default: /var/lib/gyre for root, else ~/.local/state/gyre)")
      ->type_name("DIR");
  verb_
      ->add_option("--listen", listen_,
                   "unix:PATH instead of the socket below, or HOST:PORT (0: a free one) in addition to it; repeatable")
      ->type_name("PLACE")
      ->allow_extra_args(false);
  verb_
      ->add_option("--server-file", server_file_,
                   "File through which commands of this user find it (default: ~/.config/gyre/server.json)")
      ->type_name("FILE");
  verb_
      ->add_option("--job-user", job_user_, "Account of root's own jobs, if root starts it; other users' run as theirs")
      ->type_name("USER")
      ->capture_default_str();
  verb_->add_option("--lease", lease_seconds_, "Seconds for which jobs keep running without a server")
      ->type_name("S")
      ->check(CLI::Range(5, 86'400))
      ->capture_default_str();
  verb_->add_option("--limit", limits_, "What one user may take of the server, see below; repeatable")
      ->type_name("NAME=N")
      ->allow_extra_args(false);
  verb_
      ->add_option("--keep-free", keep_free_,
                   "Free space on its disk that uploads of code, and logs that nodes send, leave for everything else, "
                   "and new jobs a tenth of; 0: none")
      ->type_name("SIZE")
      ->capture_default_str();
  verb_
      ->add_option("--code-cache", code_cache_,
                   "Archives of code that each of this machine's nodes keeps for later jobs, the latest")
      ->type_name("SIZE")
      ->capture_default_str();
  verb_
      ->add_option("--environment-cache", environment_cache_,
                   "Virtual environments (--requirements of jobs) of each account that this machine keeps for later "
                   "jobs, those that were used last")
      ->type_name("SIZE")
      ->capture_default_str();
  const auto add_days = [&](const char* name, int& days, const char* what) {
    verb_->add_option(name, days, what)->type_name("DAYS")->check(cli::whole_number_from(0))->capture_default_str();
  };
  add_days("--keep-jobs", keep_jobs_days_,
           "Days for which records of ended jobs are kept, and their logs that lie on no mount; other files stay; "
           "0: for ever");
  add_days("--keep-events", keep_events_days_,
           "Days for which events are kept; those of unfinished jobs stay; 0: for ever");
  add_days("--keep-code", keep_code_days_,
           "Days for which uploaded code is kept after its last job; 0: as long as its jobs");
  backup_verb_ = verb_->add_subcommand("backup", "Copy a server's catalog to a new file, also while it runs");
  backup_verb_->add_option("FILE", backup_, "The new file")->required();
  backup_verb_->footer(kBackupExplanation);
  backup_verb_->fallthrough();
  verb_->add_option("--log-level", log_level_, "trace debug info warning error off")
      ->type_name("LEVEL")
      ->capture_default_str();
  verb_->footer(fmt::format("{}\n\nLimits of one user, with their defaults:{}", kExplanation, limits_explained()));
}

fs::path ServerCommand::folder_in(const std::vector<std::string>& environment) const {
  if (!folder_.empty()) return fs::absolute(folder_).lexically_normal();
  if (::geteuid() == 0) return "/var/lib/gyre";
  if (const std::string state = variable_of(environment, "XDG_STATE_HOME"); !state.empty())
    return fs::path(state) / "gyre";
  const std::string home = variable_of(environment, "HOME");
  if (home.empty()) throw UsageError("HOME is not set; name a folder with --folder");
  return fs::path(home) / ".local" / "state" / "gyre";
}

std::vector<net::Endpoint> ServerCommand::endpoints(const std::vector<std::string>& environment,
                                                    const fs::path& folder) const {
  std::vector<net::Endpoint> endpoints;
  std::vector<net::Endpoint> doors;
  for (const std::string& place : listen_) {
    net::Endpoint endpoint = listen_endpoint(place);
    (endpoint.kind == net::Endpoint::Kind::kUnix ? doors : endpoints).push_back(std::move(endpoint));
  }
  // Verbs of this machine come through the first one.
  endpoints.insert(endpoints.begin(), doors.begin(), doors.end());
  for (const net::Endpoint& door : doors) {
    const fs::path place(door.host);
    if (place.is_absolute() && !fs::exists(place.parent_path())) make_door_folder(place.parent_path());
  }
  if (!doors.empty()) return endpoints;
  fs::path door = ::geteuid() == 0 ? jobs::client::door_of_root() : jobs::client::door_of_user(environment);
  if (door.empty()) door = folder / "gyre.sock";
  make_door_folder(door.parent_path());
  endpoints.insert(endpoints.begin(), {net::Endpoint::Kind::kUnix, door.string(), 0});
  return endpoints;
}

fs::path ServerCommand::file_in(const std::vector<std::string>& environment) const {
  return server_file_.empty() ? jobs::client::default_server_file(environment) : fs::absolute(server_file_);
}

int ServerCommand::back_up(const std::vector<std::string>& environment) const {
  const fs::path file = fs::absolute(backup_);
  fs::path folder = folder_in(environment);
  if (folder_.empty()) {
    // The server that the other commands find, which may have been started with another folder.
    const auto found = jobs::client::read_server_file(file_in(environment));
    if (found && !found->folder.empty()) folder = found->folder;
  }
  const jobs::catalog::BackedUpCode code = jobs::service::back_up(folder, file);
  fmt::print(stderr,
             "gyre server backup: {} has the catalog of {}, and the code of jobs that have not ended ({} {}, {})\n",
             file.string(), folder.string(), code.archives, code.archives == 1 ? "archive" : "archives",
             cli::shown_bytes(code.bytes));
  if (!code.jobs_without.empty()) {
    fmt::print(
        stderr,
        "gyre server backup: the code of these jobs is gone, and they will fail if they have to begin again after "
        "a restore: {}\n",
        fmt::join(code.jobs_without, ", "));
  }
  return 0;
}

int ServerCommand::run(const std::vector<std::string>& environment) const {
  if (backup_verb_->parsed()) return back_up(environment);
  keep_inherited_descriptors_here();
  jobs::service::ServiceOptions options;
  net::http::ServerOptions http;
  set_limits(limits_, http.limits, options);
  options.keep_free_bytes = http.spool_keeps_free = parse_size(keep_free_, "--keep-free");
  options.code_cache_bytes = parse_size(code_cache_, "--code-cache");
  options.environment_bytes = parse_size(environment_cache_, "--environment-cache");
  check_built_images(environment);
  for (const std::string& place : listen_) static_cast<void>(listen_endpoint(place));  // Before anything is made.
  EndSignals signals;  // Before any thread, so that none of them gets these signals.
  const fs::path folder = folder_in(environment);
  make_folder(folder);
  const fs::path own_file = folder / "server.json";
  const Logger logger = make_logger("server", log_level_);

  options.folder = folder;
  options.gyre_program = fs::canonical("/proc/self/exe").string();
  check_job_user(job_user_);
  options.job_user = job_user_;
  using jobs::service::Submitters;
  options.submitters = ::geteuid() == 0 ? Submitters::kAccounts : Submitters::kTrusted;
  options.lease = std::chrono::seconds(lease_seconds_);
  options.keep_jobs = std::chrono::days(keep_jobs_days_);
  options.keep_events = std::chrono::days(keep_events_days_);
  options.keep_code = std::chrono::days(keep_code_days_);
  options.logger = logger;
  options.environment = by_name(environment);
  auto service = std::make_shared<Service>(options);
  ServerFile own{.user = own_user(*service), .folder = folder.string()};

  http.what = "the job server";
  http.endpoints = endpoints(environment, folder);
  http.socket_mode = kDoorMode;
  http.certificate = net::http::certificate_in(folder / "tls.pem");
  const std::string fingerprint = http.certificate->fingerprint;
  http.authenticate = jobs::http::make_authenticator(service);
  const auto audit_log = std::make_shared<jobs::http::AuditLog>(folder / "audit.log", logger);
  http.audit = [audit_log](const net::http::AuditEntry& entry) { audit_log->add(entry); };
  http.limits.connections = std::min(http.limits.connections, most_connections(raise_file_limit(), logger));
  http.limits.strangers_per_peer = std::min(http.limits.strangers_per_peer, http.limits.connections / 4);
  http.spool_directory = folder;
  http.logger = logger;
  const std::unique_ptr<net::http::Server> server = listen(std::move(http), service);
  std::vector<std::string> texts;
  for (const net::Endpoint& endpoint : server->endpoints()) texts.push_back(text_of(endpoint, fingerprint));
  own.server = texts.front();
  if (texts.size() > 1) own.remote = texts.back();
  keep_server_file(own_file, own, *logger);
  const fs::path found_at = file_in(environment);
  keep_server_file(found_at, own, *logger);
  fmt::print(stderr, "gyre server: listens on {}; folder {}; commands of {} find it through {}\n",
             fmt::join(texts, ", "), folder.string(), own.user, found_at.string());
  while (!signals.wait(-1)) {
  }
  fmt::print(stderr, "gyre server: ends; jobs keep running for {} s, and the next server in {} finds them\n",
             lease_seconds_, folder.string());
  server->stop(kGrace);
  return 0;
}

}  // namespace gyre::app
