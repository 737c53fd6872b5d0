#include "apps/gyre/page_files.h"

#include <cstddef>

#include "gyre/base/check.h"

// The page is in the program as a file of its own, which no literal has to quote.
asm(".section .rodata\n"
    "gyre_report_page_begin: .incbin \"" GYRE_REPORT_PAGE
    "\"\n"
    "gyre_report_page_end:\n"
    ".previous\n");
extern "C" const char gyre_report_page_begin[];  // NOLINT(readability-identifier-naming)
extern "C" const char gyre_report_page_end[];    // NOLINT(readability-identifier-naming)

namespace gyre::app {

namespace {

/// What is between `begin`, where that stands last, and `end`. web/assemble.mjs sees to it that neither is in a script.
std::string_view between(std::string_view text, std::string_view begin, std::string_view end) {
  const std::size_t first = text.rfind(begin);
  GYRE_CHECK(first != std::string_view::npos);
  text.remove_prefix(first + begin.size());
  const std::size_t last = text.find(end);
  GYRE_CHECK(last != std::string_view::npos);
  return text.substr(0, last);
}

}  // namespace

std::string_view built_page() {
  return {gyre_report_page_begin, static_cast<std::size_t>(gyre_report_page_end - gyre_report_page_begin)};
}

page::PageFiles page_files() {
  return {.script = between(built_page(), "<script>", "</script>"),
          .style = between(built_page(), "<style>", "</style>")};
}

}  // namespace gyre::app
