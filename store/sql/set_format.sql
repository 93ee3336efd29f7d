INSERT INTO meta VALUES ($format);
