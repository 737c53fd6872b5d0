#include "gyre/launch/internal/service_notes.h"

#include <filesystem>
#include <system_error>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/launch_contract.h"
#include "gyre/base/process.h"

namespace gyre::launch {

namespace {

void write_note(const std::string& file, const std::string& sentence) {
  try {
    write_file_atomically(file, as_bytes(sentence));
  } catch (const Error&) {
    // The sentence stands on stderr too.
  }
}

}  // namespace

void note_start_failure(const std::vector<std::string>& environment, const std::string& sentence) {
  const std::string file = variable_of(environment, launch_contract::kStartFailureFile);
  if (file.empty()) return;
  if (!sentence.empty()) return write_note(file, sentence);
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
}

void note_missing_output(const std::vector<std::string>& environment, const std::string& sentence) {
  const std::string file = variable_of(environment, launch_contract::kMissingOutputFile);
  if (!file.empty() && !sentence.empty()) write_note(file, sentence);
}

void note_failed_rank(const std::vector<std::string>& environment, int rank) {
  const std::string file = variable_of(environment, launch_contract::kFailedRankFile);
  if (!file.empty()) write_note(file, std::to_string(rank));
}

}  // namespace gyre::launch
