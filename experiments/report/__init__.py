"""Reports: a page of HTML about results, which begins with the cause of lost time and its price."""
