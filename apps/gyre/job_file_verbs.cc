#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "apps/gyre/job_place.h"
#include "apps/gyre/job_verbs.h"
#include "apps/gyre/job_view.h"
#include "apps/gyre/remote.h"
#include "apps/gyre/run_command.h"
#include "gyre/base/error.h"
#include "gyre/jobs/client/download.h"
#include "gyre/jobs/client/log_tail.h"

// `gyre job logs`, `gyre job files` and `gyre job download`.
namespace gyre::app {

namespace {

namespace fs = std::filesystem;
using Environment = std::vector<std::string>;
using jobs::client::LogTail;
using jobs::client::RemoteFile;
using jobs::client::Session;
using jobs::resources::JobName;

struct FileOptions {
  JobOptions job{};
  std::string output = "stdouterr";
  std::string path{};
  std::string to{};
  std::vector<std::string> names{};
  bool recursive = false;
  bool follow = false;

  void add_directory(CLI::App& verb) {
    verb.add_option("-d,--directory", output, "An id of outputDirectories, work (files of --output), or stdouterr")
        ->type_name("ID")
        ->capture_default_str();
  }
};

constexpr char kLogsExplanation[] = R"(
stdout.txt goes to stdout and stderr.txt to stderr unchanged; lines of other logs (preparation, workers) are prefixed
with a name. --follow continues until the job has ended, across restarts of the server, without losing output; Ctrl-C
leaves the job running.

Examples:
  gyre job logs train-1
  gyre job logs -f train-1
  gyre job logs train-1 --file execution.log)";

int show_logs(const FileOptions& options, const Environment& environment) {
  JobView view(cli::live_options_from_environment(), "gyre job logs");
  Session session = options.job.remote.session(
      environment, options.follow ? kPatience : std::chrono::milliseconds(0), [&] { view.tick(); },
      [&](const std::string& line) { view.say(line); });
  const JobName job = options.job.find(session, environment);
  jobs::client::ServerLogs logs(session, job);
  LogTail tail(
      logs, {options.names.begin(), options.names.end()},
      [&](auto stream, auto text) { options.follow ? view.show_log(stream, text) : show_log(stream, text); },
      [&](int attempt) { view.say("gyre job logs: " + sentence_about_attempt(session, job, attempt)); });
  bool is_complete = true;
  if (options.follow) {
    say_why_it_waits(session, job, "gyre job logs");
    if (view.draws()) view.watch(shown_place(job), look_at(options.job.remote, environment, job));
    tail.follow([&] { view.tick(); });
    view.end();
  } else {
    is_complete = tail.read_all();
  }
  if (tail.found_logs()) return 0;
  if (!options.names.empty()) {
    throw Error(ErrorCode::kNotFound, fmt::format("job '{}' has no such log; `gyre job files {}` lists them",
                                                  shown_place(job), shown_place(job)));
  }
  fmt::print(stderr, "gyre job logs: job '{}' has written nothing{}\n", shown_place(job),
             is_complete ? "" : " yet; -f waits for it");
  return 0;
}

std::string file_table(const std::vector<RemoteFile>& files) {
  cli::Table table({"NAME", "SIZE", "MODIFIED"});
  for (const RemoteFile& file : files) {
    table.add({file.is_directory ? file.path + "/" : file.path, file.is_directory ? "" : cli::shown_bytes(file.bytes),
               shown_time(file.modified)});
  }
  return table.text();
}

Json file_json(const std::vector<RemoteFile>& files) {
  Json list = Json::array();
  for (const RemoteFile& file : files) {
    list.push_back({{"name", file.path},
                    {"fileType", file.is_directory ? "directory" : "file"},
                    {"contentLength", file.is_directory ? Json() : Json(file.bytes)},
                    {"lastModified", file.modified}});
  }
  return list;
}

constexpr char kDownloadExplanation[] = R"(
PATH is a file, or a directory, which is copied with everything below it; without PATH the whole output directory is
copied. Files appear under DIR with their paths, each once it is complete.

Examples:
  gyre job download train-1 -d MODEL
  gyre job download train-1 -d MODEL checkpoints/last.safetensors --to /tmp
  gyre job download train-1 -d work --to results        (files of --output)
  gyre job download train-1                             (the logs))";

/// The files that PATH stands for.
std::vector<RemoteFile> wanted_files(Session& session, const JobName& job, const FileOptions& options) {
  if (options.path.empty()) return list_files(session, job, options.output, "", true);
  try {
    return list_files(session, job, options.output, options.path, true);
  } catch (const Error& error) {
    if (!jobs::client::is_not_found(error)) throw;  // It is a file, or there is none.
  }
  std::string path;
  for (const std::string& segment : jobs::client::checked_segments(options.path)) {
    path += (path.empty() ? "" : "/") + segment;
  }
  return {{.path = path}};
}

int download_files(const FileOptions& options, const Environment& environment) {
  Session session = options.job.remote.session(environment, kPatience);
  const JobName job = options.job.find(session, environment);
  const fs::path folder = options.to.empty() ? fs::path(".") : fs::path(options.to);
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  for (const RemoteFile& file : wanted_files(session, job, options)) {
    if (file.is_directory) continue;
    const fs::path target = folder / file.path;
    bytes += jobs::client::download(session, job, options.output, file.path, target);
    ++count;
    write_out(cli::printable(target.string()) + "\n");
  }
  fmt::print(stderr, "gyre job download: {} file{}, {}\n", count, count == 1 ? "" : "s", cli::shown_bytes(bytes));
  return 0;
}

}  // namespace

void add_job_logs(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("logs", "Show a job's logs");
  auto options = std::make_shared<FileOptions>();
  options->job.add_options(*verb, Remote::kWorkspace);
  verb->add_flag("-f,--follow", options->follow, "Follow until the job has ended");
  verb->add_option("--file", options->names, "Only this file (gyre job files lists them); repeatable")
      ->type_name("NAME")
      ->allow_extra_args(false);
  verb->footer(kLogsExplanation);
  group.add(verb, [options](const Environment& environment) { return show_logs(*options, environment); });
}

void add_job_files(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("files", "List files of a job's logs or outputs");
  auto options = std::make_shared<FileOptions>();
  options->job.add_options(*verb);
  verb->add_option("PATH", options->path, "A directory below");
  options->add_directory(*verb);
  verb->add_flag("-r,--recursive", options->recursive, "Include subdirectories");
  verb->footer("\nExamples:\n  gyre job files train-1\n  gyre job files train-1 -d MODEL -r");
  group.add(verb, [options](const Environment& environment) {
    Session session = options->job.remote.session(environment);
    const JobName job = options->job.find(session, environment);
    const auto files = list_files(session, job, options->output, options->path, options->recursive);
    options->job.remote.print(file_json(files), [&] { return file_table(files); });
    return 0;
  });
}

void add_job_download(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("download", "Copy files of a job's logs or outputs");
  auto options = std::make_shared<FileOptions>();
  options->job.add_options(*verb, Remote::kWorkspace);
  verb->add_option("PATH", options->path, "A file, or a directory");
  options->add_directory(*verb);
  verb->add_option("--to", options->to, "Target directory (default: the current one)")->type_name("DIR");
  verb->footer(kDownloadExplanation);
  group.add(verb, [options](const Environment& environment) { return download_files(*options, environment); });
}

}  // namespace gyre::app
