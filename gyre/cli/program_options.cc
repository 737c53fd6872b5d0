#include "gyre/cli/program_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/cli/option_table.h"
#include "gyre/cli/parse_error.h"

namespace gyre::cli {
namespace {

constexpr std::string_view kTableOption = "--option-table";
constexpr int kUsageError = 2;

/// The words after the program's name, as `--name value` or `--name=value`; those behind `--` are left as they are.
std::vector<std::string> with_present_names(int argc, const char* const* argv, const FormerNames& former_names) {
  std::vector<std::string> words(argv + 1, argv + argc);
  for (std::string& word : words) {
    if (word == "--") break;
    const std::string_view name = std::string_view(word).substr(0, word.find('='));
    const auto found = former_names.find(name);
    if (found != former_names.end()) word = found->second + word.substr(name.size());
  }
  return words;
}

int usage_error(const CLI::App& app, std::string_view mistake) {
  fmt::print(stderr, "{0}: {1}\nSee `{0} --help`.\n", app.get_name(), mistake);
  return kUsageError;
}

}  // namespace

std::optional<int> parse_program_options(CLI::App& app, int argc, const char* const* argv,
                                         const FormerNames& former_names, const std::function<void()>& complete) {
  if (argc == 2 && std::string_view(argv[1]) == kTableOption) {
    fmt::print("{}\n", option_table(app).dump());
    return 0;
  }
  try {
    std::vector<std::string> words = with_present_names(argc, argv, former_names);
    std::ranges::reverse(words);  // CLI11 takes them from the end.
    app.parse(std::move(words));
    complete();
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, describe(error, app));
  } catch (const Error& error) {
    return usage_error(app, error.what());
  }
  return std::nullopt;
}

}  // namespace gyre::cli
