#include "workloads/training/consistency_option.h"

#include <fmt/format.h>

#include "gyre/base/error.h"
#include "gyre/params/consistency.h"

namespace gyre::training {
namespace {

/// CLI11's way to report a mistake: what is wrong, or nothing.
std::string mistake_in(const std::string& text) {
  try {
    params::parse_consistency(text);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

void add_consistency_option(CLI::App& app, std::string& consistency) {
  app.add_option("--consistency", consistency,
                 fmt::format("How the workers keep together: {}; all but sync and local need `gyre run --servers`",
                             params::kConsistencyForms))
      ->check(mistake_in)
      ->capture_default_str()
      ->type_name("FORM");
}

}  // namespace gyre::training
