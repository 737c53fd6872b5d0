#include "gyre/jobs/drivers/ssh/internal/program_copy.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/jobs/containers/program_files.h"

namespace gyre::jobs::drivers::ssh {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLongestPacking{60};
constexpr std::uint64_t kMostArchiveBytes = std::uint64_t{1} << 30;

/// The C library's own, which must be the host's: they belong to its loader.
bool is_the_hosts(const std::string& name) {
  constexpr std::array<std::string_view, 8> kOwn = {"libc.so",  "libm.so",      "libdl.so",   "libpthread.so",
                                                    "librt.so", "libresolv.so", "libutil.so", "ld"};
  return std::ranges::any_of(kOwn, [&](std::string_view own) { return name.starts_with(own); });
}

}  // namespace

ProgramArchive make_program_archive(const fs::path& program, const fs::path& folder) {
  const fs::path staged = folder / "program";
  const fs::path archive = folder / "program.tar";
  fs::remove_all(staged);
  fs::create_directories(staged / "bin/lib");
  // Where the programs look for what stands in for Horovod: without Gyre's Python package that is nothing.
  fs::create_directories(staged / "gyre/_horovod_shim");
  for (const char* name : {"gyre", "gyre-node", "gyre-node-contained"}) {
    for (const containers::BindMount& mount : containers::program_mounts(fs::path(program).replace_filename(name))) {
      const std::string file = fs::path(mount.target).filename();
      if (mount.target == containers::kProgramInContainer) {
        fs::copy_file(mount.source, staged / "bin" / name);
      } else if (!is_the_hosts(file)) {
        fs::copy_file(mount.source, staged / "bin/lib" / file, fs::copy_options::skip_existing);
      }
    }
  }
  SpawnOptions options;
  options.argv = {"/bin/tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner",
                  "-cf",      archive,       "-C",         staged,      "bin",       "gyre"};
  const auto status = Process::spawn(options).wait(Deadline::after(kLongestPacking));
  fs::remove_all(staged);
  if (!status || !status->success()) throw Error(ErrorCode::kIo, fmt::format("tar cannot write {}", archive.string()));
  return {archive, hex(sha256(read_file(archive, kMostArchiveBytes)))};
}

}  // namespace gyre::jobs::drivers::ssh
