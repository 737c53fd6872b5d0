#pragma once

#include <string_view>

#include "gyre/page/routes.h"

namespace gyre::app {

/// web/built/report.html, as it is in the program.
std::string_view built_page();

/// Its script and its style sheet, for a page that loads them.
page::PageFiles page_files();

}  // namespace gyre::app
