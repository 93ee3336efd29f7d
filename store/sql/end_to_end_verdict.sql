SELECT json FROM end_to_end WHERE run_id = $run_id AND seq = $seq;
