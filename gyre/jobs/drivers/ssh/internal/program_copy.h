#pragma once

#include <filesystem>
#include <string>

namespace gyre::jobs::drivers::ssh {

/// Gyre for hosts without it: one archive of the programs that nodes run, with the libraries that such a host may not
/// have.
struct ProgramArchive {
  std::filesystem::path file;
  std::string sha256;
};

/// Of `program` ("gyre-node"), made in `folder` where it is not there. Error(kUnsupported) where the program is
/// missing.
ProgramArchive make_program_archive(const std::filesystem::path& program, const std::filesystem::path& folder);

}  // namespace gyre::jobs::drivers::ssh
