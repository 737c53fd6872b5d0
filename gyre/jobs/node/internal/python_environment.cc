#include "gyre/jobs/node/internal/python_environment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/base/reach.h"
#include "gyre/cli/table.h"
#include "gyre/jobs/node/code.h"
#include "gyre/jobs/node/internal/mpi_line.h"
#include "gyre/jobs/spec/requirements.h"

namespace gyre::jobs::node::internal {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDigits = 32;  // Of the hash: the first line of a script has a short limit.
constexpr const char* kComplete = "complete";

/// File 9 is the lock. The first line of `complete` is the Python that it was made of, the second its size.
constexpr const char* kLines = R"sh(
exec 1>&2 9>>{folder}.lock || exit 1
d={folder}
umask 077
flock -n -s 9 || {{ echo "gyre: another job makes $d; waits for it"; flock -s 9 || exit 1; }}
python=
for p in python3 {beside} python; do
  p=$(command -v "$p") || continue
  [ -n "$python" ] || python=$p
  "$p" -I -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("gyre") is None)' || continue
  python=$p
  break
done
[ -n "$python" ] || {{ echo "ERROR: there is no python3 on this node's PATH"; exit 1; }}
own="$python $("$python" -I -c 'import sys; print(sys.version.split()[0])')" || exit 1
is_whole() {{ [ -e "$d/complete" ] && [ "$(head -n 1 "$d/complete")" = "$own" ] && "$d/bin/python3" -I -c ''; }}
is_whole && exit 0
flock -n -x 9 || {{ echo "gyre: a job has $d, which was made of another Python, or makes it; waits for it"; flock -x 9 || exit 1; }}
is_whole && exit 0
echo "gyre: makes $d with $own"
make() {{
  rm -rf "$d" && "$python" -I -m venv "$d" || return
  "$python" -I -c 'import sys; print("\n".join(p for p in sys.path if p.endswith("-packages")))' > "$d/node.pth" || return
  cp "$d/node.pth" "$("$d/bin/python3" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz_node.pth" || return
  [ -n "${{PIP_CACHE_DIR-}}" ] || export PIP_NO_CACHE_DIR=1
  "$d/bin/python3" -I -m pip install --disable-pip-version-check --no-input -r {requirements} || return
  printf '%s\n' "$own" "$(du -sk "$d" | cut -f 1)" > "$d/complete.new" && mv "$d/complete.new" "$d/complete"
}}
make && exit 0
code=$?
rm -rf "$d"
exit $code)sh";

/// Of pip's variables those that say where packages come from, and which. Others say how it works.
bool changes_packages(const std::string& name) {
  constexpr std::array<std::string_view, 16> kOthers = {
      "CACHE_DIR",   "CERT",         "CLIENT_CERT", "DEFAULT_TIMEOUT", "DISABLE_PIP_VERSION_CHECK",
      "LOG",         "NO_CACHE_DIR", "NO_COLOR",    "NO_INPUT",        "PROGRESS_BAR",
      "PROXY",       "QUIET",        "RETRIES",     "TIMEOUT",         "VERBOSE",
      "TRUSTED_HOST"};
  constexpr std::string_view kOfPip = "PIP_";
  return name.starts_with(kOfPip) && std::ranges::find(kOthers, name.substr(kOfPip.size())) == kOthers.end();
}

/// Folders are named in events, and nobody shall try passwords against their names in passing.
std::string slow_hash(const std::string& secret, const std::string& salt) {
  constexpr int kRounds = 100'000;
  Sha256 hash = hmac_sha256(as_bytes(salt), as_bytes(secret));
  for (int round = 0; round < kRounds; ++round) hash = hmac_sha256(as_bytes(secret), hash);
  return hex(hash);
}

bool is_lock(const fs::path& file) { return file.extension() == ".lock"; }

UniqueFd open_lock(const fs::path& lock) {
  return UniqueFd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
}

void make_folder_of_account(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw system_error(fmt::format("cannot make {}", folder.string()), errno);
  }
  struct stat status{};
  if (::lstat(folder.c_str(), &status) != 0) throw system_error(fmt::format("cannot open {}", folder.string()), errno);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is not a folder of account '{}', whose environments belong there: an administrator "
                            "has to move it away",
                            folder.string(), user_name(::geteuid())));
  }
  if (::chmod(folder.c_str(), 0700) != 0) throw system_error(fmt::format("cannot use {}", folder.string()), errno);
}

struct Kept {
  fs::path folder;
  std::uint64_t bytes = 0;
  fs::file_time_type used;
  bool whole = false;
};

Kept looked_at(const fs::path& folder) {
  constexpr std::uint64_t kBlock = 1024;
  Kept kept{.folder = folder, .bytes = 0, .used = fs::file_time_type::min(), .whole = false};
  std::error_code failure;
  const auto used = fs::last_write_time(folder / kComplete, failure);
  if (failure) return kept;
  std::ifstream file(folder / kComplete);
  std::string python;
  std::uint64_t blocks = 0;
  if (std::getline(file, python) && file >> blocks) kept.bytes = blocks * kBlock;
  kept.used = used;
  kept.whole = true;
  return kept;
}

}  // namespace

fs::path environments_of_account() {
  const std::string name = user_name(::geteuid());
  const bool plain = std::ranges::all_of(name, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("._-").find(c) != std::string_view::npos;
  });
  return fmt::format("/var/tmp/gyre-environments-{}", plain ? name : std::to_string(::geteuid()));
}

std::string requirements_text(const spec::PythonRequirements& wanted, int code) {
  if (wanted.file.empty()) return spec::requirements_text(wanted.lines);
  if (code < 0) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("its requirements are the file {} of its code, and it comes without code (--code DIR)",
                            wanted.file));
  }
  const CodeContent content(code);
  const CodeContent::Entry* entry = content.file(wanted.file);
  if (entry == nullptr) {
    throw Error(ErrorCode::kNotFound, fmt::format("its code has no file {}, which its requirements name", wanted.file));
  }
  if (entry->content.size() > spec::kMostRequirementsBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} in its code has {} bytes, and requirements have at most {}", wanted.file,
                            entry->content.size(), spec::kMostRequirementsBytes));
  }
  std::string text = spec::requirements_text(spec::requirement_lines(as_text(entry->content)));
  if (const auto refusal = spec::refusal_of_requirements(as_text(entry->content))) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} in its code: {}", wanted.file, cli::printable(*refusal)));
  }
  return text;
}

std::string identity_of(const std::string& requirements, const Variables& variables) {
  std::string inputs;
  for (const auto& [name, value] : variables) {
    const bool named = requirements.find(fmt::format("${{{}}}", name)) != std::string::npos;
    if (named || changes_packages(name)) inputs += fmt::format("{}={}{}", name, value, '\0');
  }
  return inputs.empty() ? requirements : requirements + '\0' + slow_hash(inputs, requirements);
}

PythonEnvironment::PythonEnvironment(fs::path all, const std::string& identity)
    : all_(std::move(all)), folder_(all_ / hex(sha256(as_bytes(identity))).substr(0, kDigits)) {
  make_folder_of_account(all_);
}

fs::path PythonEnvironment::lock_of(const fs::path& folder) const { return folder.string() + ".lock"; }

std::string PythonEnvironment::line_that_makes_it(const fs::path& requirements, const std::string& gyre_program) const {
  return fmt::format(fmt::runtime(kLines), fmt::arg("folder", in_single_quotes(folder_.string())),
                     fmt::arg("requirements", in_single_quotes(requirements.string())),
                     fmt::arg("beside", in_single_quotes(fs::path(gyre_program).replace_filename("python3").string())));
}

bool PythonEnvironment::is_whole() const { return ::access((folder_ / kComplete).c_str(), R_OK) == 0; }

bool PythonEnvironment::hold() {
  if (held_) return true;
  UniqueFd lock = open_lock(lock_of(folder_));
  if (!lock || ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0) return false;
  if (!is_whole()) return false;
  ::utimensat(AT_FDCWD, (folder_ / kComplete).c_str(), nullptr, 0);  // Used last.
  held_ = std::move(lock);
  return true;
}

void PythonEnvironment::enter(Variables& variables) const {
  std::string& path = variables["PATH"];
  path = fmt::format("{}/bin{}{}", folder_.string(), path.empty() ? "" : ":", path);
  variables["VIRTUAL_ENV"] = folder_;
  variables.erase("PYTHONHOME");
}

void PythonEnvironment::make_room(std::uint64_t most_bytes) const {
  std::vector<Kept> others;
  std::uint64_t bytes = looked_at(folder_).bytes;
  std::error_code failure;
  for (auto entry = fs::directory_iterator(all_, failure); !failure && entry != fs::directory_iterator();
       entry.increment(failure)) {
    if (is_lock(entry->path()) || entry->path() == folder_) continue;
    others.push_back(looked_at(entry->path()));
    bytes += others.back().bytes;
  }
  std::ranges::sort(others, {}, &Kept::used);
  for (const Kept& kept : others) {
    if (kept.whole && bytes <= most_bytes) return;
    const UniqueFd lock = open_lock(lock_of(kept.folder));
    if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;  // Somebody has it.
    std::error_code ignored;
    fs::remove(kept.folder / kComplete, ignored);
    fs::remove_all(kept.folder, ignored);
    bytes -= kept.bytes;
  }
}

std::string words_of_pip(std::string_view output) {
  constexpr std::size_t kMostLines = 3;
  constexpr std::size_t kLongest = 300;
  std::deque<std::string> errors;
  std::deque<std::string> last;
  for (std::string line : split(output, '\n')) {
    const std::size_t end = line.find_last_not_of(" \t\r");
    line.resize(end == std::string::npos ? 0 : end + 1);
    if (line.empty()) continue;
    const bool is_error = line.starts_with("ERROR:") || line.starts_with("error:") || line.starts_with("Error:");
    std::deque<std::string>& lines = is_error ? errors : last;
    lines.push_back(cli::printable(line.substr(0, kLongest)));
    if (lines.size() > kMostLines) lines.pop_front();
  }
  const std::deque<std::string>& told = errors.empty() ? last : errors;
  return fmt::format("{}", fmt::join(told, "; "));
}

}  // namespace gyre::jobs::node::internal
