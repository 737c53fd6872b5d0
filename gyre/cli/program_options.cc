#include "gyre/cli/program_options.h"

#include <fmt/format.h>

#include <string_view>

#include "gyre/cli/option_table.h"
#include "gyre/cli/parse_error.h"

namespace gyre::cli {
namespace {

constexpr std::string_view kTableOption = "--option-table";
constexpr int kUsageError = 2;

}  // namespace

std::optional<int> parse_program_options(CLI::App& app, int argc, const char* const* argv,
                                         const std::function<void()>& complete) {
  if (argc == 2 && std::string_view(argv[1]) == kTableOption) {
    fmt::print("{}\n", option_table(app).dump());
    return 0;
  }
  try {
    app.parse(argc, argv);
    complete();
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "{0}: {1}\nSee `{0} --help`.\n", app.get_name(), describe(error, app));
    return kUsageError;
  }
  return std::nullopt;
}

}  // namespace gyre::cli
