#include "gyre/base/check.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace gyre::internal {

std::string address_text(const void* address) { return fmt::format("{}", address); }

std::string number_text(double number) { return fmt::format("{}", number); }

void check_failed(const char* expression, const std::string& values, const char* file, int line) {
  fmt::print(stderr, "gyre: check failed at {}:{}: {} (values: {}). This is a bug in Gyre.\n", file, line, expression,
             values);
  std::fflush(stderr);
  std::abort();
}

}  // namespace gyre::internal
