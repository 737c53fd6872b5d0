#include "apps/gyre/node_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>

#include "apps/gyre/program_start.h"
#include "apps/gyre/usage_error.h"
#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/parse.h"
#include "gyre/base/process.h"
#include "gyre/base/secret_key.h"
#include "gyre/cli/number_check.h"
#include "gyre/jobs/containers/program_files.h"
#include "gyre/jobs/node/attempt_process.h"
#include "gyre/jobs/node/container_holder.h"
#include "gyre/jobs/node/container_root.h"
#include "gyre/jobs/node/job_command.h"
#include "gyre/jobs/node/mounts.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/jobs/node/node_program.h"
#include "gyre/jobs/node/remote_shell.h"
#include "gyre/jobs/node/supervisor.h"
#include "gyre/jobs/orders/secure_connection.h"

namespace gyre::app {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostKeyBytes = 1024;
constexpr std::chrono::seconds kLongestPlaces{60};

constexpr char kExplanation[] = R"(
The job service starts one agent on each node. The agent connects to the service, holds a lease, and carries out the
service's orders: preparation, mounts, the job's processes, logs, exit records. Once it is ready it prints one line,
{"process": PID}, and detaches from stdin, stdout, stderr and the session; its own log is agent/agent.log below the
node's folder. The key is 64 hexadecimal digits, in a file that only its user can read, or on stdin.

If it runs as root, it needs a user for the jobs, which never run as root.

Examples:
  gyre agent --service unix:/var/lib/gyre/hub.sock --key-file agents.key --node node-0 --root /var/lib/gyre/node-0
  gyre agent --service tcp:10.0.0.1:7700 --key-file - --node n1 --root /scratch/gyre < agents.key)";

/// What programs expect of a login; everything else of the service's environment is none of a job's business.
bool is_for_jobs(std::string_view name) {
  constexpr std::array kNames = {"PATH", "LANG", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "SHELL", "TERM"};
  constexpr std::array kPrefixes = {"LC_", "CUDA_", "NVIDIA_", "NCCL_", "MKL_", "OPENBLAS_"};
  return std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kPrefixes, [&](const char* prefix) { return name.starts_with(prefix); });
}

jobs::node::Variables variables_for_jobs(const std::vector<std::string>& environment) {
  jobs::node::Variables variables;
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || !is_for_jobs(std::string_view(entry).substr(0, equals))) continue;
    variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return variables;
}

void use_containers(const std::vector<std::string>& environment, jobs::node::NodeOptions& options) {
  options.containers = jobs::containers::storage_of(environment);
  options.runtime_environment = jobs::containers::runtime_environment(environment);
}

net::JobKey key_at(const std::string& where) {
  UniqueFd file;
  if (where != "-") {
    file = UniqueFd(::open(where.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0) throw system_error(fmt::format("cannot read {}", where), errno);
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("others than its user can read the key file {}; chmod 600 it", where));
    }
  }
  Bytes bytes = read_secret(file ? file.get() : STDIN_FILENO, kMostKeyBytes, where == "-" ? "the key on stdin" : where);
  const WipedAtEnd wiped(bytes);
  std::string_view digits = as_text(bytes);
  while (digits.ends_with('\n')) digits.remove_suffix(1);
  return jobs::orders::key_from_hex(digits);
}

/// Readable when we are asked to end. Before any thread starts: they inherit the mask. SIGHUP waits for ever. Whatever
/// signals our caller ignores (`nohup`, `&` in a script), the job's processes get them as they would in a terminal.
UniqueFd catch_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT}) ::sigaddset(&signals, signal);
  sigset_t blocked = signals;
  ::sigaddset(&blocked, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
  for (const int signal : {SIGHUP, SIGTERM, SIGINT, SIGQUIT}) ::signal(signal, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) throw system_error("cannot wait for signals", errno);
  return fd;
}

/// Whoever started us may go now.
void detach(const fs::path& log_file) {
  const std::string line = fmt::format("{{\"process\": {}}}\n", ::getpid());
  [[maybe_unused]] const ssize_t ignored = ::write(STDOUT_FILENO, line.data(), line.size());
  const UniqueFd null_fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd log(::open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) {
    if (null_fd) ::dup2(null_fd.get(), fd);
  }
  if (log || null_fd) ::dup2(log ? log.get() : null_fd.get(), STDERR_FILENO);
}

}  // namespace

NodeProgramCommand::NodeProgramCommand(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("agent", "Work for the job service on this node (drivers start it)");
  verb->add_option("--service", service_,
                   "Address of the service: unix:/PATH, tcp:HOST:PORT, or file:/PATH of a file that contains it")
      ->required();
  verb->add_option("--key-file", key_file_, "The key of the service's agents; - is stdin")->capture_default_str();
  verb->add_option("--node", node_, "This node's name")->required();
  verb->add_option("--root", root_, "This node's own folder")->required()->type_name("DIR");
  verb->add_option("--job-user", job_user_, "User to run jobs as, if the agent is root")->capture_default_str();
  verb->add_option("--give-up-seconds", give_up_seconds_,
                   "Exit after this long without work and without the service; 0: never")
      ->capture_default_str()
      ->check(cli::whole_number_from(0));
  verb->add_option("--untold-seconds", untold_seconds_,
                   "The same where the service has not acknowledged how a job ended, if that is longer")
      ->capture_default_str()
      ->check(cli::whole_number_from(0));
  verb->add_option("--code-cache", code_cache_, "Archives of code to keep for later jobs, the latest")
      ->type_name("SIZE")
      ->capture_default_str();
  verb->add_option("--environment-cache", environment_cache_,
                   "Virtual environments of each account to keep for later jobs, those that were used last")
      ->type_name("SIZE")
      ->capture_default_str();
  verb->add_option("--log-level", log_level_, "trace debug info warning error off")->capture_default_str();
  verb->add_option("--address", address_,
                   "Address of this node for other nodes (default: the one from which it reaches the service)");
  verb->add_flag("--supervise", supervise_,
                 "Restart the agent if it is killed, and clean up at the end; for engines that start this command");
  verb->add_flag("--foreground", foreground_, "Stay attached to the terminal, and log to it");
  verb->footer(kExplanation);
}

int NodeProgramCommand::run(const std::vector<std::string>& environment, const std::string& called_as) const {
  keep_inherited_descriptors_here();
  const std::string program = fs::canonical(find_command(called_as, variable_of(environment, "PATH")));
  if (supervise_) return supervise(environment, program);
  jobs::node::NodeProgramOptions options;
  options.node_id = node_;
  constexpr std::string_view kInFile = "file:";
  if (service_.starts_with(kInFile)) {
    options.service_file = service_.substr(kInFile.size());
  } else {
    options.service = net::parse_endpoint(service_);
  }
  options.address = address_;
  // A file is read again for every connection: a server that is restored into an empty folder makes a new key.
  options.key = [first = key_at(key_file_), file = key_file_] { return file == "-" ? first : key_at(file); };
  options.give_up = std::chrono::seconds(give_up_seconds_);
  options.give_up_untold = std::chrono::seconds(untold_seconds_);
  options.code_cache_bytes = parse_bytes(code_cache_, "--code-cache");
  options.node.environment_bytes = parse_bytes(environment_cache_, "--environment-cache");
  options.logger = make_logger(node_, log_level_);
  options.node.root = fs::weakly_canonical(fs::absolute(root_));  // As the kernel shows mount points.
  options.node.base = variables_for_jobs(environment);
  options.node.gyre_program = program;
  use_containers(environment, options.node);
  ::umask(S_IWGRP | S_IWOTH);
  if (::geteuid() == 0) {
    options.node.user = jobs::node::find_job_user(job_user_);
    if (jobs::node::enter_own_mount_namespace()) options.node.mounts = jobs::node::MountMethod::kBind;
  }
  const UniqueFd signals = catch_signals();
  jobs::node::NodeProgram node_program(options);
  if (!foreground_) detach(jobs::node::NodeFolders(options.node.root).own() / "agent.log");
  node_program.run(signals.get());
  return 0;
}

int NodeProgramCommand::supervise(const std::vector<std::string>& environment, const std::string& program) const {
  if (key_file_ == "-")
    throw UsageError("--supervise needs the key in a file, because the agent may have to be restarted");
  jobs::node::SupervisorOptions options;
  options.command = {program,
                     "agent",
                     "--foreground",
                     "--service",
                     service_,
                     "--key-file",
                     key_file_,
                     "--node",
                     node_,
                     "--root",
                     root_,
                     "--job-user",
                     job_user_,
                     "--give-up-seconds",
                     std::to_string(give_up_seconds_),
                     "--untold-seconds",
                     std::to_string(untold_seconds_),
                     "--code-cache",
                     code_cache_,
                     "--environment-cache",
                     environment_cache_,
                     "--log-level",
                     log_level_};
  if (!address_.empty()) options.command.insert(options.command.end(), {"--address", address_});
  options.environment = environment;
  options.root = fs::weakly_canonical(fs::absolute(root_));
  options.logger = make_logger(node_, log_level_);
  const UniqueFd signals = catch_signals();
  return jobs::node::supervise(options, signals.get());
}

AttemptCommand::AttemptCommand(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("attempt", "Carry out a job's attempt on this node (the agent starts it)");
  verb->group("");
  verb->add_option("--agent-fd", program_fd_, "The descriptor that leads to the agent")->required();
  CLI::App* command = app.add_subcommand(kCommandVerb, "Serve a command that a user runs in a job");
  command->group("");
  command->add_option("--fd", channel_fd_, "The descriptor that leads to the agent")->required();
}

int AttemptCommand::run_command(const std::vector<std::string>& environment) const {
  return jobs::node::serve_job_command(UniqueFd(channel_fd_), environment);
}

int AttemptCommand::run(const std::vector<std::string>& environment) const {
  return jobs::node::run_attempt_process(program_fd_, environment);
}

ContainerCommands::ContainerCommands(CLI::App& app) {
  CLI::App* holder = app.add_subcommand("hold", "Be the first process of a job's container");
  CLI::App* entry = app.add_subcommand("enter", "Carry out a job's attempt in its container (the agent starts it)");
  for (CLI::App* verb : {holder, entry}) {
    verb->group("");
    verb->add_option("--socket", socket_, "Where the container's first process listens")->required();
  }
  holder->add_option("--root", root_, "USER:GROUP:FIRST:COUNT: who is who outside; not given: it is so already");
  entry->add_option("--agent-fd", program_fd_, "The descriptor that leads to the agent")->required();
  entry->add_option("--code-fd", code_fd_, "The archive of the job's code");
}

/// Returns as a new program: nothing of what it was before is left. From here on things of the image may run.
void ContainerCommands::become_root(const std::vector<std::string>& environment) const {
  const jobs::node::ContainerRoot root = jobs::node::parse_container_root(root_);
  jobs::node::await_folder(fs::path(socket_).parent_path(), Deadline::after(kLongestPlaces));
  if (::umount2(jobs::containers::kPreloadList, MNT_DETACH) != 0) {
    throw system_error(fmt::format("cannot show the image's {}", jobs::containers::kPreloadList), errno);
  }
  jobs::node::become_container_root(root);
  std::vector<std::string> words = {jobs::containers::kProgramInContainer, "hold", "--socket", socket_};
  std::vector<std::string> variables = jobs::node::with_variables_of_image(environment);
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
  };
  ::execve(words.front().c_str(), pointers(words).data(), pointers(variables).data());
  throw system_error(fmt::format("cannot start {}", words.front()), errno);
}

void ContainerCommands::run_holder(const std::vector<std::string>& environment) const {
  if (!root_.empty()) become_root(environment);
  std::vector<std::string> of_image = environment;
  // Podman's, and the mark by which the node finds this process.
  std::erase_if(of_image, [](const std::string& entry) {
    return entry.starts_with("container=") || entry.starts_with("GYRE_JOB_CONTAINER=");
  });
  jobs::node::hold_container(socket_, fs::read_symlink("/proc/self/exe"), of_image);
}

int ContainerCommands::run_entry(const std::vector<std::string>& environment) const {
  return jobs::node::enter_container({.socket = socket_, .channel = program_fd_, .code = code_fd_}, environment);
}

NodeShellCommands::NodeShellCommands(CLI::App& app) {
  app.add_subcommand("agent-shell", "Run a command on another node of the job, as ssh does")->group("");
  CLI::App* server = app.add_subcommand("agent-shell-server", "Let the job's other nodes run commands here");
  server->group("");
  server->add_option("--listen-fd", listen_fd_, "The listening socket")->required();
  server->add_option("--key-fd", key_fd_, "Descriptor to read the key from")->required();
  server->add_option("--node", node_, "Which of the job's nodes this is, from 0")->required();
}

int NodeShellCommands::run_client(std::vector<std::string> arguments, const std::vector<std::string>& environment) {
  if (!arguments.empty() && arguments.front() == "--") arguments.erase(arguments.begin());
  const std::string table = variable_of(environment, jobs::node::kShellTableVariable);
  if (table.empty()) throw UsageError("this is for jobs of the job service; there is no table of their shells here");
  return jobs::node::run_remote_shell(arguments, table, environment);
}

int NodeShellCommands::run_server(const std::vector<std::string>& environment) const {
  std::array<char, kMostKeyBytes> text;
  const WipedAtEnd wiped(text);
  const ssize_t count = ::pread(key_fd_, text.data(), text.size(), 0);
  const net::JobKey key =
      jobs::orders::key_from_hex({text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))});
  ::close(key_fd_);
  ::fcntl(listen_fd_, F_SETFD, FD_CLOEXEC);
  std::vector<std::string> own = environment;
  std::erase_if(own, [](const std::string& entry) {
    return entry.starts_with("GYRE_SHELL_FD=") || entry.starts_with("GYRE_SHELL_KEY_FD=");
  });
  jobs::node::serve_remote_shells(UniqueFd(listen_fd_), key, node_, own);
}

}  // namespace gyre::app
