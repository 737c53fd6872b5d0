#include "apps/gyre/run_staging.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "apps/gyre/stage_progress.h"
#include "apps/gyre/usage_error.h"
#include "gyre/base/cores.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/parse.h"
#include "gyre/cli/table.h"
#include "gyre/store/node/store_source.h"

namespace gyre::app {

namespace {

namespace fs = std::filesystem;

constexpr const char* kVariable = "GYRE_STAGE_DIR";
constexpr std::string_view kPlaceholder = "{stage-dir}";
constexpr std::string_view kFolderPrefix = "gyre-stage-";

void replace_all(std::string& text, std::string_view what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

/// The folder, locked; nothing where another process has it, or it is not a folder of this account.
UniqueFd lock_folder(const fs::path& folder) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status{};
  if (!fd || ::fstat(fd.get(), &status) != 0 || status.st_uid != ::geteuid()) return {};
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return fd;
}

/// Those of launchers that were killed.
void remove_leftovers(const fs::path& parent) {
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, failure)) {
    if (!entry.path().filename().string().starts_with(kFolderPrefix)) continue;
    if (const UniqueFd held = lock_folder(entry.path())) fs::remove_all(entry.path(), failure);
  }
}

}  // namespace

/// Where the set goes. One that this makes is removed with it.
class RunStaging::Folder {
 public:
  /// `keep`: `parent` itself. Error(kIo, …).
  Folder(const fs::path& parent, bool keep) {
    std::error_code failure;
    if (keep) fs::create_directories(parent, failure);
    if (failure) throw system_error("cannot make the folder " + parent.string(), failure.value());
    path_ = fs::canonical(parent, failure);
    if (failure) throw system_error("cannot use --stage-dir " + parent.string(), failure.value());
    if (keep) return;
    remove_leftovers(path_);
    std::string pattern = (path_ / (std::string(kFolderPrefix) + "XXXXXX")).string();
    // Another launcher may take a new folder for a leftover before it is locked.
    for (int tries = 0; !lock_ && tries < kTries; ++tries) {
      std::string name = pattern;
      if (::mkdtemp(name.data()) == nullptr) throw system_error("cannot make a folder in " + path_.string(), errno);
      lock_ = lock_folder(name);
      struct stat status{};
      if (lock_ && (::fstat(lock_.get(), &status) != 0 || status.st_nlink == 0)) lock_ = {};
      if (lock_) path_ = name;
    }
    if (!lock_) throw Error(ErrorCode::kIo, fmt::format("cannot lock a folder in {}", path_.string()));
  }
  ~Folder() {
    if (!lock_) return;
    std::error_code failure;
    fs::remove_all(path_, failure);
    if (failure) fmt::print(stderr, "gyre run: cannot remove {}: {}\n", path_.string(), failure.message());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  static constexpr int kTries = 10;

  fs::path path_;
  UniqueFd lock_;  ///< Of a folder that is to be removed.
};

void RunStaging::add_options(CLI::App& verb) {
  constexpr const char* kGroup = "A data set for the ranks";
  verb.add_option("--stage", sources_,
                  "Bring this data set to a folder of this host first, as `gyre stage` does, and remove it afterwards; "
                  "{stage-dir} in COMMAND, and GYRE_STAGE_DIR, name the folder; repeatable")
      ->type_name("SOURCE")
      ->allow_extra_args(false)
      ->group(kGroup);
  verb.add_option("--stage-dir", parent_, "Where the folder is made (default: TMPDIR, or /tmp)")
      ->type_name("DIR")
      ->group(kGroup);
  verb.add_flag(
          "--stage-keep", keep_,
          "Bring it to --stage-dir itself, and keep it there for the next run; what else was staged there before is "
          "removed")
      ->group(kGroup);
  verb.add_flag("--stage-decompress", decompress_, "Decompress it, as `gyre stage --decompress-by-suffix`")
      ->group(kGroup);
  verb.add_option("--stage-sas", sas_, "A shared access signature: @FILE, env:NAME, or - for standard input")
      ->type_name("SAS")
      ->group(kGroup);
  verb.add_flag("--stage-keep-credentials", keep_credentials_,
                "Leave the variables with the source's keys to the ranks, too")
      ->group(kGroup);
}

bool RunStaging::is_wanted() const {
  if (sources_.empty() && (!parent_.empty() || keep_ || decompress_ || !sas_.empty() || keep_credentials_)) {
    throw UsageError("--stage is missing: which data set");
  }
  if (keep_ && parent_.empty()) throw UsageError("--stage-keep needs --stage-dir: where the data set is to stay");
  if (!sas_.empty() && sas_ != "-" && !sas_.starts_with('@') && !sas_.starts_with("env:")) {
    throw UsageError("--stage-sas needs @FILE, env:NAME or -: others can read the command line");
  }
  return !sources_.empty();
}

std::vector<std::string> RunStaging::secret_variables() const {
  std::vector<std::string> names = {"AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY",
                                    "AZURE_STORAGE_SAS_TOKEN",         "AWS_ACCESS_KEY_ID",
                                    "AWS_SECRET_ACCESS_KEY",           "AWS_SESSION_TOKEN"};
  constexpr std::string_view kFromVariable = "env:";
  if (sas_.starts_with(kFromVariable)) names.push_back(sas_.substr(kFromVariable.size()));
  return names;
}

void RunStaging::tell_ranks(launch::LaunchOptions& options, const fs::path& folder) const {
  std::vector<std::string> dropped = keep_credentials_ ? std::vector<std::string>{} : secret_variables();
  dropped.emplace_back(kVariable);
  std::erase_if(options.environment, [&](const std::string& entry) {
    return std::ranges::find(dropped, entry.substr(0, entry.find('='))) != dropped.end();
  });
  options.environment.push_back(fmt::format("{}={}", kVariable, folder.string()));
  for (std::string& word : options.command) replace_all(word, kPlaceholder, folder.string());
}

struct RunStaging::Listed {
  std::vector<std::unique_ptr<store::Source>> sources{};
  store::Manifest manifest{};
};

RunStaging::Listed RunStaging::list(const std::vector<std::string>& environment) const {
  const store::Credentials known = stage_credentials(sas_, environment);
  store::WaitNotice notice(store::say_on_stderr("gyre run"));
  Listed listed;
  std::vector<store::Listing> listings;
  for (const std::string& name : sources_) {
    auto source = store::node::open_source_or_store(name, known);
    listings.push_back(
        {.source = source->name(), .objects = source->list({.notice = &notice}, store::StageOptions().patience)});
    listed.sources.push_back(std::move(source));
  }
  listed.manifest =
      store::make_manifest(std::move(listings), decompress_ ? store::Inflation::kBySuffix : store::Inflation::kNone);
  return listed;
}

void RunStaging::bring(const Listed& listed, const fs::path& folder, EndSignals& signals, bool verbose,
                       launch::JobWatcher* watcher) {
  store::WaitNotice notice(store::say_on_stderr("gyre run"));
  const store::StageOptions options{
      .folder = folder, .workers = usable_cores(), .notice = &notice, .leftovers = store::Leftovers::kRemoveAll};
  const store::Receipt receipt = stage_with_progress(
      listed.manifest, listed.sources, options, signals, false,
      watcher == nullptr ? nullptr : std::function<void(const std::string&)>([watcher](const std::string& text) {
        watcher->preparing(text, false);
      }));
  if (verbose) fmt::print(stderr, "{}", receipt.text());
  for (const std::string& note : receipt.notes()) fmt::print(stderr, "gyre run: {}\n", cli::printable(note));
  if (receipt.complete()) {
    if (watcher != nullptr) {
      watcher->preparing(fmt::format("the data set is here, {} files, in {}", receipt.files, folder.string()), true);
    }
    return;
  }
  throw Error(ErrorCode::kCorruptData, fmt::format("{} of {} files did not arrive: {}", receipt.failed.size(),
                                                   receipt.files, cli::printable(receipt.failed.front().second)));
}

int RunStaging::around(launch::LaunchOptions& options, const std::vector<std::string>& environment,
                       const std::function<int()>& job) const {
  constexpr int kSignalled = 128;
  const std::string parent = parent_.empty() ? environment_variable("TMPDIR").value_or("/tmp") : parent_;
  if (options.watcher != nullptr) options.watcher->preparing("listing the data set", false);
  const Listed listed = list(environment);  // Until there is a folder, a signal may end this process.
  EndSignals signals;
  const Folder folder(parent, keep_);
  try {
    bring(listed, folder.path(), signals, options.verbose, options.watcher);
  } catch (Error& error) {
    if (signals.received() != 0) {
      if (options.watcher != nullptr) options.watcher->stopping(signals.received());
      fmt::print(stderr, "gyre run: stopped by {} while the data set was being brought here; nothing was started\n",
                 ::strsignal(signals.received()));
      return kSignalled + signals.received();
    }
    error.add_context("the data set cannot be brought here, and nothing was started");
    throw;
  }
  tell_ranks(options, folder.path());
  return job();
}

}  // namespace gyre::app
