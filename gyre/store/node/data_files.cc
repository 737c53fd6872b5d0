#include "gyre/store/node/data_files.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "gyre/store/node/store_source.h"

namespace gyre::store::node {

namespace {

std::vector<std::string> environment_of_process() {
  std::vector<std::string> entries;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

}  // namespace

DataFiles data_files_from_environment(std::uint64_t budget_bytes) {
  return DataFiles(
      [](const std::string& given) { return open_source_or_store(given, credentials_from(environment_of_process())); },
      reading_options(budget_bytes));
}

}  // namespace gyre::store::node
